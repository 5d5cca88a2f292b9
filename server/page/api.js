// The server as the page calls it: addresses, the key, and refusals in words.

const KEY = "framecast-key";

/** What went wrong, in words for the listener; `status` is HTTP's, 0 without a reply. */
export class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

/** The address of a path of this server, wherever the page itself is mounted. */
export function address(path) {
  return new URL(path, document.baseURI);
}

/** The reply to a request that succeeded; throws a `Failure`, or the abort. */
export async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set("Authorization", `Bearer ${key.get()}`);
  let reply;
  try {
    reply = await fetch(address(path), { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Failure("The server cannot be reached.");
  }
  if (!reply.ok) throw await refusal(reply);
  return reply;
}

export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** A message as a sentence. */
export function sentence(text) {
  const end = /[.!?]$/.test(text) ? "" : ".";
  return text.charAt(0).toUpperCase() + text.slice(1) + end;
}

async function refusal(reply) {
  const body = await reply.json().catch(() => null);
  const said = sentence(body?.error?.message ?? `the server answered with status ${reply.status}`);
  const wait = reply.headers.get("Retry-After");
  return new Failure(wait ? `${said} Try again in ${wait} s.` : said, reply.status);
}
