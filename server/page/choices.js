// What can be chosen: models, their voices and languages, and what the choice asks of the server.

import { ask } from "./api.js";

const TASKS = { custom_voice: "CustomVoice", voice_design: "VoiceDesign", base: "Base" };
const at = (id) => document.getElementById(id);
const titled = (word) => word.charAt(0).toUpperCase() + word.slice(1).replaceAll("_", " ");

export class Choices {
  constructor(onModel) {
    this.models = [];
    this.voices = [];
    this.onModel = onModel;
    at("model").addEventListener("change", () => this.showModel());
    at("speed").addEventListener("input", () => showSpeed());
  }

  get model() {
    return this.models.find((model) => model.id === at("model").value);
  }

  /** Ask the server what there is; what was chosen stays chosen. */
  async load() {
    const [models, voices] = await Promise.all(
      ["v1/audio/models", "v1/audio/voices"].map(
        async (path) => (await (await ask(path)).json()).data,
      ),
    );
    this.models = models;
    this.voices = voices;
    const chosen = at("model").value;
    fill(
      at("model"),
      models.map((model) => option(model.id, model.name)),
    );
    if (models.some((model) => model.id === chosen)) at("model").value = chosen;
    this.showModel();
  }

  /** Choose a voice by name, on the model that speaks it. */
  pick(model, voice) {
    at("model").value = model;
    this.showModel();
    at("voice").value = voice;
  }

  /** The fields of a request, but for its text. */
  fields() {
    const instructions = at("instructions").value.trim();
    return {
      model: this.model?.id,
      voice: at("voice").value || undefined,
      language: at("language").value || undefined,
      instructions: at("instructions").disabled || !instructions ? undefined : instructions,
      speed: Number(at("speed").value),
    };
  }

  showModel() {
    const { model } = this;
    if (!model) return;
    const [voice, language] = [at("voice").value, at("language").value];
    fill(at("voice"), this.voiceOptions(model));
    keep(at("voice"), voice, model.default_voice);
    fill(
      at("language"),
      model.languages.map((name) =>
        option(name, name === "auto" ? "As the text is" : titled(name)),
      ),
    );
    keep(at("language"), language, "auto");
    at("instructions").disabled = !model.accepts_instructions;
    at("instructions-hint").textContent = instructionsHint(model);
    this.onModel(model);
  }

  voiceOptions(model) {
    const own = this.voices.filter((each) => each.model === model.id);
    const saved =
      model.task === "base" ? this.voices.filter((each) => each.kind === "registered") : [];
    const groups = [
      group(
        "Speakers",
        own.filter((each) => each.kind === "speaker"),
        (each) => titled(each.name),
      ),
      group("Saved voices", saved, (each) => each.name),
      group(
        "Other names",
        own.filter((each) => each.kind === "alias"),
        (each) => `${each.name} (${each.alias_of})`,
      ),
    ].filter((each) => each.children.length);
    if (model.task === "voice_design")
      return [option("", "As the instructions describe it"), ...groups];
    return groups.length ? groups : [option("", "None saved: any voice")];
  }
}

export const taskName = (model) => TASKS[model.task];

function instructionsHint(model) {
  if (!model.accepts_instructions) return `${model.name} does not follow instructions.`;
  if (model.task === "voice_design")
    return "Describe the voice: this model makes it from the description.";
  return "How to speak, such as “calm and slow”. Never spoken.";
}

function showSpeed() {
  const speed = Number(at("speed").value);
  at("speed-shown").textContent = `${speed}×`;
  at("speed").setAttribute("aria-valuetext", `${speed} times`);
}

function keep(select, chosen, otherwise) {
  const values = [...select.options].map((each) => each.value);
  if (values.includes(chosen)) select.value = chosen;
  else if (values.includes(otherwise)) select.value = otherwise;
}

function fill(select, children) {
  select.replaceChildren(...children);
  select.disabled = false;
}

function option(value, text) {
  return new Option(text, value);
}

function group(label, voices, text) {
  const made = document.createElement("optgroup");
  made.label = label;
  made.append(...voices.map((each) => option(each.id, text(each))));
  return made;
}
