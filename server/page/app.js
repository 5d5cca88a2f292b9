// The page: what is pressed, what is happening, and what is told.

import { key, sentence } from "./api.js";
import { Choices } from "./choices.js";
import { Feed } from "./feed.js";
import { Player } from "./player.js";
import { LiveText, speakAgain, speakWhole } from "./speech.js";
import { watch } from "./status.js";
import { Take } from "./take.js";
import { SaveVoice } from "./voices.js";
import { Wave } from "./wave.js";

const EXACT = { wav: (take) => take.wav(), pcm: (take) => take.pcm() };
const ENDS = {
  length: "It was cut at the longest length.",
  loop: "It was ended because it repeated itself.",
  silence: "It was ended because it had fallen silent.",
};
const HINTS = {
  whole: "Ctrl and Enter speaks, Escape stops.",
  live: "Each word leaves as it is complete. Ctrl and Enter ends the text, Escape stops.",
};
const at = (id) => document.getElementById(id);
const main = at("main");
const player = new Player();
const wave = new Wave(at("wave"));
const feed = new Feed(at("text"), tell);
const choices = new Choices((model) => save.offer(model, choices.models));
const save = new SaveVoice(
  async (saved) => {
    await choices.load();
    choices.pick(saved.model, saved.id);
  },
  (error) => askForKey(error),
);

let take = new Take();
let spoken = null; // the request that made the take
let running = null; // aborts what is being spoken
let fetching = false; // a download is being made
let frame = 0; // the next picture of the waveform

async function speak() {
  fail(null);
  if (!at("text").value.trim() && mode() === "whole") {
    fail(new Error("There is no text to speak."));
    at("text").focus();
    return;
  }
  const abort = new AbortController();
  running = abort;
  take = new Take();
  show("waiting");
  tell(mode() === "live" ? "Listening to what you type" : "Waiting for the first sound");
  try {
    player.begin();
    const note = await made(abort.signal);
    await player.silence();
    tell(abort.signal.aborted ? stopped() : ended(note));
  } catch (error) {
    player.stop();
    if (error.name === "AbortError") tell(stopped());
    else fail(error);
  } finally {
    abort.abort();
    running = null;
    show("idle");
  }
}

// The whole text, or the text as it is typed; what is worth telling at the end.
async function made(signal) {
  let begun = performance.now();
  const sink = (bytes) => hear(bytes, begun);
  // Drawn here, so that it can be spoken once more for a download.
  const seed = crypto.getRandomValues(new Uint32Array(1))[0];
  const fields = { ...choices.fields(), seed };
  if (mode() === "whole") {
    spoken = { ...fields, input: at("text").value };
    return speakWhole(spoken, sink, signal);
  }
  spoken = { ...fields, input: "", normalize: false, non_streaming_mode: false };
  const live = new LiveText(fields, sink, signal);
  feed.start(
    (words) => {
      if (!spoken.input) begun = performance.now();
      spoken.input += words;
      live.say(words);
    },
    () => live.finish(),
  );
  at("end-text").hidden = false;
  at("text").focus();
  return live.ended.finally(() => feed.stop()).then((reason) => ENDS[reason]);
}

function hear(bytes, begun) {
  if (!take.samples) {
    at("first").textContent = `${Math.round(performance.now() - begun)} ms`;
    show("speaking");
    tell("Speaking");
  }
  player.push(take.add(bytes));
  main.dataset.samples = take.samples;
}

function endText() {
  feed.finish();
  if (feed.open) return;
  at("speak").focus();
  at("end-text").hidden = true;
}

function stop() {
  running?.abort();
  player.stop();
}

async function replay() {
  fail(null);
  const abort = new AbortController();
  running = abort;
  player.begin();
  show("speaking");
  at("speak").focus();
  tell("Playing again");
  player.push(await take.sound());
  await player.silence();
  tell(abort.signal.aborted ? "Stopped." : ended());
  running = null;
  show("idle");
}

// No button is disabled while it has the focus, which would be lost.
async function download() {
  if (fetching) return;
  fetching = true;
  fail(null);
  const format = at("format").value;
  try {
    if (!EXACT[format]) tell("Speaking once more for the download");
    const blob = await (EXACT[format]?.(take) ?? speakAgain(spoken, format));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `speech.${format}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    tell(`Downloaded as speech.${format}.`);
  } catch (error) {
    fail(error);
  } finally {
    fetching = false;
  }
}

function show(state) {
  main.dataset.state = state;
  const idle = state === "idle";
  at("speak").textContent = idle ? (mode() === "live" ? "Start" : "Speak") : "Stop";
  at("end-text").hidden = idle || !feed.open;
  at("text-hint").textContent = HINTS[mode()];
  for (const id of ["replay", "download"]) at(id).disabled = !idle || !take.samples;
  document.querySelectorAll("[name=mode]").forEach((each) => (each.disabled = !idle));
  if (state === "waiting") {
    main.dataset.samples = 0;
    for (const id of ["first", "length", "gaps"]) at(id).textContent = "–";
  }
  at("wave").setAttribute("aria-label", `Waveform: ${idle && take.samples ? seconds() : state}`);
  draw();
}

function draw() {
  wave.show(take.peaks, take.samples ? player.heard / take.samples : 0);
  if (take.samples) {
    at("length").textContent = seconds();
    at("gaps").textContent = player.gaps;
  }
  cancelAnimationFrame(frame);
  if (main.dataset.state !== "idle") frame = requestAnimationFrame(draw);
}

const mode = () => document.querySelector("[name=mode]:checked").value;
const seconds = () => `${take.seconds.toFixed(1)} s`;
const stopped = () => `Stopped after ${seconds()} of sound.`;

function ended(note) {
  if (!take.samples) return "There was nothing to speak.";
  return `Spoken: ${seconds()} of sound.${note ? ` ${sentence(note)}` : ""}`;
}

function tell(text) {
  at("status").textContent = text;
}

function fail(error) {
  at("error").textContent = error ? error.message : "";
  if (!error) return;
  tell("");
  askForKey(error);
}

function askForKey(error) {
  if (error.status !== 401) return;
  at("key-form").hidden = false;
  at("key").focus();
}

function explainFormat() {
  const exact = at("format").value in EXACT;
  at("format-hint").textContent = exact
    ? ""
    : "This format is made by speaking once more, with the same seed. WAV and PCM hold what was heard.";
}

async function load() {
  try {
    await choices.load();
  } catch (error) {
    fail(error);
  }
}

at("speak").addEventListener("click", () => (running ? stop() : speak()));
at("end-text").addEventListener("click", endText);
at("replay").addEventListener("click", replay);
at("download").addEventListener("click", download);
at("format").addEventListener("change", explainFormat);
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (!running) speak();
  else if (feed.open) endText();
});
document.addEventListener("keydown", (event) => event.key === "Escape" && running && stop());
document
  .querySelectorAll("[name=mode]")
  .forEach((each) => each.addEventListener("change", () => show("idle")));
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(at("key").value.trim());
  at("key").value = "";
  at("key-form").hidden = true;
  fail(null);
  tell("The key is kept until this tab is closed.");
  at("speak").focus();
  load();
});

show("idle");
load();
watch(load);
