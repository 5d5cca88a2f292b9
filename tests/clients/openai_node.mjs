// The openai package of npm: a whole reply, a stream, events and an error.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "unused", maxRetries: 0 });
const wanted = { model: "tts-1", voice: "alloy", input: "Hello there, how are you today?" };

const whole = await client.audio.speech.create(wanted);
assert.equal(whole.headers.get("content-type"), "audio/mpeg");
assert.ok((await whole.arrayBuffer()).byteLength > 1000);

const streamed = await client.audio.speech.create({ ...wanted, response_format: "pcm" });
let bytes = 0;
for await (const piece of streamed.body) bytes += piece.length;
assert.ok(bytes > 1000 && bytes % 2 === 0);

const events = await client.audio.speech.create({ ...wanted, stream_format: "sse" });
const lines = (await events.text()).split("\n\n").filter(Boolean);
const last = JSON.parse(lines.at(-1).slice("data: ".length));
assert.equal(last.type, "speech.audio.done");
assert.ok(last.usage.total_tokens > 0);

await assert.rejects(client.audio.speech.create({ ...wanted, voice: "nobody" }), (error) => {
  return error instanceof OpenAI.BadRequestError && error.param === "voice";
});
