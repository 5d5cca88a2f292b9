// The waveform: one bar per peak until the width is full, then bars that stand for more.

const BAR = 3;
const GAP = 2;

export class Wave {
  constructor(canvas) {
    this.canvas = canvas;
    this.peaks = [];
    this.played = 0;
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Draw peaks of 0 to 1; `played`, 0 to 1, is the part that was heard. */
  show(peaks, played) {
    this.peaks = peaks;
    this.played = played;
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const scale = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== across) canvas.width = across;
    if (canvas.height !== down) canvas.height = down;
    const brush = canvas.getContext("2d");
    brush.setTransform(scale, 0, 0, scale, 0, 0);
    brush.clearRect(0, 0, width, height);
    const colours = getComputedStyle(canvas);
    const room = Math.max(1, Math.floor(width / (BAR + GAP)));
    const bars = gathered(this.peaks, room);
    const heard = bars.length * this.played;
    for (let at = 0; at < room; at += 1) {
      const there = at < bars.length;
      const tall = there ? Math.max(BAR, Math.sqrt(bars[at]) * (height - 8)) : BAR;
      const name = !there ? "--wave-rest" : at < heard ? "--wave-heard" : "--wave-ahead";
      brush.fillStyle = colours.getPropertyValue(name);
      brush.beginPath();
      brush.roundRect(at * (BAR + GAP), (height - tall) / 2, BAR, tall, BAR / 2);
      brush.fill();
    }
  }
}

function gathered(peaks, room) {
  if (peaks.length <= room) return peaks;
  const bars = new Array(room).fill(0);
  peaks.forEach((peak, at) => {
    const bar = Math.floor((at * room) / peaks.length);
    bars[bar] = Math.max(bars[bar], peak);
  });
  return bars;
}
