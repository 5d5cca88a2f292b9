// Text to the server, samples back: in one request, or over a socket while it is written.

import { Failure, address, ask, key, post, sentence } from "./api.js";
import { RATE } from "./take.js";

const SOUND = { response_format: "pcm", sample_rate: RATE };

/** Speak `body`, give every piece of sound to `sink`, and return the server's warning, if any. */
export async function speakWhole(body, sink, signal) {
  const reply = await post(
    "v1/audio/speech",
    { ...body, ...SOUND, stream_format: "audio" },
    signal,
  );
  const reader = reply.body.getReader();
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read())
      sink(piece.value);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Failure("The reply broke off before its end.");
  }
  return reply.headers.get("x-framecast-warning");
}

/** The sound of a text in another format; with the same seed it is the same speech. */
export async function speakAgain(body, format) {
  const reply = await post("v1/audio/speech", { ...body, response_format: format, stream: false });
  return reply.blob();
}

/** One utterance that is fed as it is written; `ended` settles after its last sound. */
export class LiveText {
  constructor(config, sink, signal) {
    this.sink = sink;
    this.waiting = [];
    this.ready = false;
    this.reason = null;
    this.ended = new Promise((resolve, reject) => Object.assign(this, { resolve, reject }));
    this.socket = this.open();
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () =>
      this.send({ ...config, ...SOUND, type: "session.config", stream_audio: true });
    this.socket.onmessage = ({ data }) => this.receive(data);
    this.socket.onclose = ({ reason }) => this.closed(reason);
    signal.addEventListener("abort", () => this.end(signal.reason));
  }

  say(text) {
    this.post({ type: "input.text", text });
  }

  finish() {
    this.post({ type: "input.done" });
  }

  open() {
    const url = address("v1/audio/speech/stream");
    url.protocol = url.protocol.replace("http", "ws");
    // A page cannot give a socket headers.
    const protocols = key.get() ? ["realtime", `openai-insecure-api-key.${key.get()}`] : [];
    try {
      return new WebSocket(url, protocols);
    } catch {
      throw new Failure("The API key has characters that a browser cannot send for live text.");
    }
  }

  post(message) {
    if (this.ready) this.send(message);
    else this.waiting.push(message);
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  receive(data) {
    if (data instanceof ArrayBuffer) {
      this.sink(new Uint8Array(data));
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "session.configured") this.begin();
    if (message.type === "error") this.end(new Failure(sentence(message.message)));
    if (message.type === "audio.done") this.reason = message.finish_reason;
    if (message.type === "session.done") this.end();
  }

  begin() {
    this.ready = true;
    this.waiting.splice(0).forEach((message) => this.send(message));
  }

  end(error = null) {
    if (error) this.reject(error);
    else this.resolve(this.reason);
    this.socket.onclose = null;
    this.socket.onmessage = null;
    this.socket.close();
  }

  async closed(reason) {
    if (this.ready)
      this.reject(
        new Failure(
          reason ? sentence(`the connection was closed: ${reason}`) : "The connection broke off.",
        ),
      );
    else this.reject(await whyRefused());
  }
}

// A browser does not tell a page why a socket was refused; a request that needs the same key is.
async function whyRefused() {
  try {
    await ask("v1/audio/voices/-");
  } catch (error) {
    if (error.status !== 404) return error;
  }
  return new Failure("The server did not take the connection for live text.");
}
