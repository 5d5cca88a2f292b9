// Saving a voice: a clip from a file or the microphone, who agreed, and the upload.

import { Failure, ask, sentence } from "./api.js";
import { taskName } from "./choices.js";

const LONGEST_S = 30;
const at = (id) => document.getElementById(id);

export class SaveVoice {
  /** `onSaved` gets the saved voice; `onRefused` a failure the page itself has to deal with. */
  constructor(onSaved, onRefused) {
    this.onSaved = onSaved;
    this.onRefused = onRefused;
    this.model = null;
    this.recorded = null;
    this.recorder = null;
    this.saving = false;
    at("save-form").addEventListener("submit", (event) => this.submit(event));
    at("record").addEventListener("click", () => this.toggle());
    at("clip").addEventListener("change", () => this.useRecording(null));
    if (!navigator.mediaDevices) {
      at("record").disabled = true;
      at("record-hint").textContent =
        "Browsers lend the microphone to HTTPS pages and to localhost only.";
    }
  }

  /** Say whether a voice can be saved for the chosen model, or for another one. */
  offer(chosen, models) {
    this.model = chosen.task === "base" ? chosen : models.find((model) => model.task === "base");
    at("save-form").hidden = !this.model;
    at("save-reason").textContent = this.model
      ? `Saved for ${this.model.name}, and kept by the server.`
      : `Only a Base model speaks in the voice of a clip. This server has ${models.map((model) => `${model.name} (${taskName(model)})`).join(", ")}.`;
  }

  async submit(event) {
    event.preventDefault();
    if (this.saving) return;
    this.saving = true;
    this.tell("Saving", "");
    try {
      const saved = await this.upload();
      await this.onSaved(saved);
      at("save-form").reset();
      this.useRecording(null);
      this.tell(
        [`${saved.name} is saved and chosen.`, ...(saved.warnings ?? []).map(sentence)].join(" "),
        "",
      );
    } catch (error) {
      this.tell("", error.message);
      this.onRefused(error);
    } finally {
      this.saving = false;
    }
  }

  async upload() {
    const clip = this.recorded ?? at("clip").files[0];
    const name = at("voice-name").value.trim();
    if (!clip) throw new Failure("Choose a clip or record one.");
    if (!name) throw new Failure("Give the voice a name.");
    const consent = at("consent-clip").files[0];
    const agreed = consent ? await this.keepConsent(name, consent) : at("consent").value;
    const form = new FormData();
    form.append("name", name);
    form.append("audio_sample", clip, clip.name ?? "recording");
    form.append("ref_text", at("transcript").value);
    form.append("consent", agreed);
    form.append("overwrite", at("overwrite").checked);
    form.append("model", this.model.id);
    return (await ask("v1/audio/voices", { method: "POST", body: form })).json();
  }

  async keepConsent(name, recording) {
    const form = new FormData();
    form.append("name", at("consent").value.trim() || name);
    form.append("language", navigator.language);
    form.append("recording", recording);
    return (await (await ask("v1/audio/voice_consents", { method: "POST", body: form })).json()).id;
  }

  async toggle() {
    if (this.recorder) {
      this.recorder.stop();
      return;
    }
    try {
      await this.record(await navigator.mediaDevices.getUserMedia({ audio: true }));
    } catch (error) {
      this.tell("", `The microphone cannot be used: ${error.message}`);
    }
  }

  record(stream) {
    const parts = [];
    const recorder = new MediaRecorder(stream);
    const limit = setTimeout(() => recorder.stop(), LONGEST_S * 1000);
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.onstop = () => {
      clearTimeout(limit);
      stream.getTracks().forEach((track) => track.stop());
      this.recorder = null;
      this.useRecording(new Blob(parts, { type: recorder.mimeType }));
      this.tell("Recorded. Listen to it before you save it.", "");
    };
    this.recorder = recorder;
    recorder.start();
    at("record").textContent = "Stop recording";
    this.tell(`Recording, at most ${LONGEST_S} seconds`, "");
  }

  useRecording(recorded) {
    this.recorded = recorded;
    const preview = at("preview");
    URL.revokeObjectURL(preview.src);
    preview.hidden = !recorded;
    if (recorded) preview.src = URL.createObjectURL(recorded);
    else preview.removeAttribute("src");
    if (recorded) at("clip").value = "";
    at("record").textContent = recorded ? "Record again" : "Record";
  }

  tell(status, error) {
    at("save-status").textContent = status;
    at("save-error").textContent = error;
  }
}
