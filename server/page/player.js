// Sound without seams: each piece is scheduled to the sample behind the one before it.

import { RATE } from "./take.js";

// How far ahead the first piece is scheduled; twice as far after each gap, so that they get rarer.
const LEAD_S = 0.08;
const LONGEST_LEAD_S = 1;

export class Player {
  constructor() {
    this.context = null;
    this.playing = new Set();
    this.next = 0;
    this.handed = 0;
    this.gaps = 0;
    this.quiet = () => {};
  }

  /** Begin anew; to be called while a key or button is pressed, or a browser may stay silent. */
  begin() {
    this.stop();
    // At the sound's own rate, so that no piece is resampled by itself.
    this.context ??= new AudioContext({ sampleRate: RATE });
    this.context.resume();
    this.next = 0;
    this.handed = 0;
    this.gaps = 0;
  }

  push(sound) {
    if (!sound.length) return;
    const now = this.context.currentTime * RATE;
    if (this.next < now) {
      this.gaps += this.handed > 0 ? 1 : 0;
      this.next = Math.ceil(now + Math.min(LEAD_S * 2 ** this.gaps, LONGEST_LEAD_S) * RATE);
    }
    const buffer = this.context.createBuffer(1, sound.length, RATE);
    buffer.copyToChannel(sound, 0);
    const source = new AudioBufferSourceNode(this.context, { buffer });
    source.connect(this.context.destination);
    source.onended = () => this.over(source);
    source.start(this.next / RATE);
    this.playing.add(source);
    this.next += sound.length;
    this.handed += sound.length;
  }

  /** Samples heard so far. */
  get heard() {
    const left = this.playing.size ? this.next - this.context.currentTime * RATE : 0;
    return Math.max(0, Math.min(this.handed, Math.round(this.handed - left)));
  }

  /** Resolves when nothing is left to hear. */
  silence() {
    if (!this.playing.size) return Promise.resolve();
    return new Promise((resolve) => (this.quiet = resolve));
  }

  stop() {
    for (const source of this.playing) {
      source.onended = null;
      source.stop();
      source.disconnect();
    }
    this.playing.clear();
    this.quiet();
  }

  over(source) {
    this.playing.delete(source);
    if (!this.playing.size) this.quiet();
  }
}
