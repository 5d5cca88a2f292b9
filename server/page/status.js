// The server's state, slots and queue, asked while the page is looked at.

import { ask } from "./api.js";

const EVERY_MS = 2000;

const shown = (id, text) => (document.getElementById(id).textContent = text);

/** Keep the numbers at the top fresh; `onBack` is called when a lost server answers again. */
export async function watch(onBack) {
  for (;;) {
    const before = level();
    if (!document.hidden) await Promise.all([health(), load()]);
    if (before === "bad" && level() !== "bad") onBack();
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

async function health() {
  try {
    const body = await (await ask("health")).json();
    state(body.ready ? "Ready" : body.reason || "Warming up", body.ready ? "good" : "wait");
  } catch (error) {
    state(error.status ? "Not working" : "Not reachable", "bad");
  }
}

function state(text, level) {
  shown("state", text);
  document.getElementById("state").dataset.level = level;
}

function level() {
  return document.getElementById("state").dataset.level;
}

async function load() {
  try {
    const text = await (await ask("metrics")).text();
    shown("slots", `${gauge(text, "active_slots")} of ${gauge(text, "slots")}`);
    shown("queue", gauge(text, "queue_depth"));
  } catch {
    shown("slots", "–");
    shown("queue", "–");
  }
}

function gauge(text, name) {
  const found = text.match(new RegExp(`^framecast_${name} (\\S+)$`, "m"));
  return found ? String(Number(found[1])) : "–";
}
