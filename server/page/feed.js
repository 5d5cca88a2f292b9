// Text that leaves word by word while it is typed, out of a field that stays as it was written.

// Up to the last blank, or the last letter of a script that has none between words.
const WHOLE_WORDS = /^.*[\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]/su;
const WORD = /\s*[^\s]+\s*|\s+/gu;

export class Feed {
  constructor(field, tell) {
    this.field = field;
    this.tell = tell;
    this.sent = "";
    this.open = false;
    field.addEventListener("input", (event) => event.isComposing || this.follow());
    field.addEventListener("compositionend", () => this.follow());
  }

  /** Give every whole word to `say`, those that are there first, and the end to `end`. */
  start(say, end) {
    Object.assign(this, { say, end, sent: "", open: true });
    this.follow();
  }

  stop() {
    this.open = false;
  }

  /** The text is complete: what is left of it leaves, and nothing after it. */
  finish() {
    if (!this.open || !this.follow(true)) return;
    this.open = false;
    this.end();
  }

  /** Say what is ready to leave; false when that is no longer clear. */
  follow(all = false) {
    if (!this.open) return false;
    const text = this.field.value;
    if (!text.startsWith(this.sent)) {
      this.tell("Words that have been sent cannot be changed: undo that, or stop and start anew.");
      return false;
    }
    const ready = all ? text : (text.match(WHOLE_WORDS)?.[0] ?? "");
    for (const word of ready.slice(this.sent.length).match(WORD) ?? []) this.say(word);
    this.sent = ready.length > this.sent.length ? ready : this.sent;
    return true;
  }
}
