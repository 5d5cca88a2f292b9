"""Step 1, text: what the teacher reads aloud. Writes `text.json` of sentences by purpose.

Sources: Debian's `fortunes` (sentences), `wamerican` and the teacher's own lexicon (every word it
knows), a word chain over the training sentences (common words in new neighbourhoods), numbers.
One sentence in 30 is held out before anything is derived from the rest.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import hibari

FORTUNES = Path("/usr/share/games/fortunes")
WORDS = Path("/usr/share/dict/words")
SKIP = {"art", "ascii-art", "translate-me", "perl", "debian", "linuxcookie", "off", "zippy"}
SENTENCE = re.compile(r"[A-Z][A-Za-z ,'\-;:.!?]{7,125}[.!?]")
SHOUTED = re.compile(r"\b[A-Z]{2,}\b|\b[A-Z]\.|\.\.|--|[!?]{2}| - |'[^a-z]")
INTERJECTIONS = """
    yes no hello hi okay thanks please sorry stop wait go now here there today tomorrow maybe never
    always good great fine sure really right left one two three four five six seven eight nine ten
    zero eleven twelve what who when where why how goodbye welcome help start ready done
"""
PHRASES = """
    Good morning|Good evening|Good night|Thank you|Thank you very much|See you later|Of course
    Not yet|I am sorry|How are you|What time is it|Where are you|Come in|Sit down|Let us go
    No problem|Good luck|Well done|I do not know|That is right|You are welcome|Excuse me
    Just a moment
"""
MONTHS = """
    January February March April May June July August September October November December
"""


def fortunes() -> list[str]:
    found = set()
    for path in sorted(FORTUNES.iterdir()):
        if path.suffix or path.name in SKIP or not path.is_file():
            continue
        for entry in path.read_text("utf-8", errors="ignore").split("\n%\n"):
            plain = re.sub(r"\s+", " ", re.sub(r"\n\s*--.*", "", entry, flags=re.S))
            for part in re.split(r"(?<=[.!?])\s+", plain):
                line = part.strip().strip('"').strip()
                if SENTENCE.fullmatch(line) and not SHOUTED.search(line) and " " in line:
                    found.add(line)
    return sorted(found)


def is_held_out(sentence: str) -> bool:
    digest = hashlib.sha256(re.sub(r"\W", "", sentence).lower().encode()).digest()
    return digest[0] % 30 == 0


def lexicon() -> list[str]:
    """Words of the teacher's lexicon that Debian's list has too, and its names."""
    path = Path(hibari.__file__).parent / "assets" / "lexicon_us_gold.json.gz"
    known = json.loads(gzip.decompress(path.read_bytes()))
    listed = set(WORDS.read_text("utf-8").split())
    return sorted(w for w in known if re.fullmatch(r"[A-Za-z][a-z]{1,14}", w) and w in listed)


def chains(sentences: list[str], count: int, rng: random.Random) -> Iterator[str]:
    """Random walks over word pairs of the sentences."""
    after: dict[tuple[str, str], list[str]] = defaultdict(list)
    for sentence in sentences:
        words = ["", "", *sentence.split(), "\n"]
        for a, b, c in zip(words, words[1:], words[2:], strict=False):
            after[a, b].append(c)
    known = set(sentences)
    while count:
        pair, out = ("", ""), []
        while (word := rng.choice(after[pair])) != "\n":
            out.append(word)
            pair = (pair[1], word)
        line = " ".join(out)
        if line not in known and 12 <= len(line) <= 110:
            known.add(line)
            count -= 1
            yield line


def word_lists(words: list[str], rng: random.Random) -> Iterator[str]:
    """Every word once, a few to a line, bare, in lists and in carrier sentences."""
    carriers = ["The {} was {}.", "Is the {} {}?", "{} and {}.", "He said {}, then {}.", "A {} {}."]
    words = rng.sample(words, len(words))
    while words:
        take = min(len(words), rng.choice([1, 2, 2, 3, 4, 5, 6]))
        part, words = words[:take], words[take:]
        if take == 2:
            line = rng.choice(carriers).format(*part)
        else:
            line = rng.choice([" ", ", ", " "]).join(part) + rng.choice([".", ".", "?", "!", ""])
        yield line[0].upper() + line[1:] if rng.random() < 0.7 else line


def numbers(count: int, rng: random.Random) -> Iterator[str]:
    forms = [
        lambda: f"It costs {rng.randint(1, 999)} dollars.",
        lambda: f"In {rng.randint(1500, 2040)} there were {rng.randint(2, 120)} of them.",
        lambda: f"Call me at {rng.randint(1, 12)}:{rng.randint(10, 59)}.",
        lambda: (
            f"On {rng.choice(MONTHS.split())} {rng.randint(1, 31)} we counted {rng.randint(0, 99)}."
        ),
        lambda: f"Room {rng.randint(1, 500)}, please.",
        lambda: f"About {rng.randint(1, 99)} percent of {rng.randint(100, 9000)} people agreed.",
        lambda: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(2, 6))) + ".",
        lambda: f"{rng.randint(0, 1000)}.",
    ]
    for _ in range(count):
        yield rng.choice(forms)()


def short_lines(sentences: list[str], rng: random.Random) -> Iterator[str]:
    """Single words and short phrases, in every dress a user may give them."""
    seen: dict[str, int] = defaultdict(int)
    for sentence in sentences:
        for word in re.findall(r"[a-z]+", sentence.lower()):
            seen[word] += 1
    common = sorted(w for w, n in seen.items() if n >= 25 and len(w) > 1)
    for word in common + INTERJECTIONS.split() * 3:
        yield rng.choice([word, word.capitalize()]) + rng.choice([".", ".", "!", "?", ""])
    for phrase in re.split(r"\||\n", PHRASES.strip()) * 3:
        yield phrase.strip() + rng.choice([".", "!", "?", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    rng = random.Random(1)
    every = fortunes()
    train = [s for s in every if not is_held_out(s)]
    held = [s for s in every if is_held_out(s)]
    derived = [
        *chains(train, 14000, rng),
        *word_lists(lexicon(), rng),
        *numbers(2500, rng),
        *short_lines(train, rng),
    ]
    for lines in (train, held, derived):
        rng.shuffle(lines)
    kept = {re.sub(r"\W", "", s).lower() for s in held}
    derived = [s for s in derived if re.sub(r"\W", "", s).lower() not in kept]
    args.out.mkdir(parents=True, exist_ok=True)
    content = {"sentences": train, "derived": derived, "held_out": held}
    (args.out / "text.json").write_text(json.dumps(content, indent=0), encoding="utf-8")
    print({name: len(lines) for name, lines in content.items()})


if __name__ == "__main__":
    main()
