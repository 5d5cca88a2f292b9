// What was heard: 16-bit samples as they came, and the peaks that are drawn of them.

export const RATE = 24000;
const PER_PEAK = RATE / 50;

export class Take {
  constructor() {
    this.pieces = [];
    this.samples = 0;
    this.peaks = [];
    this.odd = new Uint8Array(0);
    this.inPeak = 0;
  }

  get seconds() {
    return this.samples / RATE;
  }

  /** Keep a piece of a stream of little-endian samples, cut anywhere; returns it for playing. */
  add(bytes) {
    const whole = new Uint8Array(this.odd.length + bytes.length);
    whole.set(this.odd);
    whole.set(bytes, this.odd.length);
    const even = whole.length - (whole.length % 2);
    this.odd = whole.slice(even);
    this.pieces.push(whole.slice(0, even));
    const sound = decoded(whole.buffer.slice(0, even));
    sound.forEach((value) => this.measure(Math.abs(value)));
    return sound;
  }

  /** All of it, for playing. */
  async sound() {
    return decoded(await this.pcm().arrayBuffer());
  }

  measure(level) {
    if (this.inPeak === 0) this.peaks.push(0);
    const last = this.peaks.length - 1;
    if (level > this.peaks[last]) this.peaks[last] = level;
    this.inPeak = (this.inPeak + 1) % PER_PEAK;
    this.samples += 1;
  }

  pcm() {
    return new Blob(this.pieces, { type: "audio/pcm" });
  }

  wav() {
    return new Blob([header(2 * this.samples), ...this.pieces], { type: "audio/wav" });
  }
}

function decoded(buffer) {
  const view = new DataView(buffer);
  return Float32Array.from(
    { length: buffer.byteLength / 2 },
    (_, at) => view.getInt16(2 * at, true) / 32768,
  );
}

// RIFF, one PCM chunk: mono, 16 bits.
function header(size) {
  const view = new DataView(new ArrayBuffer(44));
  const text = (at, letters) =>
    [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + size, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, size, true);
  return view.buffer;
}
