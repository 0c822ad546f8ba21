// Time: a slider, a button, the space bar. A scene is told where between its times it is.

const SECONDS = 5;

/** Where t lies among the stored times: the number of the one before, and how far it is to the next. */
function between(times, t) {
  if (times.length === 1) return { frame: 0, next: 0, share: 0 };
  const place = t * (times.length - 1);
  const frame = Math.min(Math.floor(place), times.length - 2);
  return { frame, next: frame + 1, share: place - frame };
}

/** Stored frames of `size` numbers each, read at any moment between them. */
function mix(values, size, moment) {
  const mixed = new Float32Array(size);
  const a = moment.frame * size;
  const b = moment.next * size;
  for (let i = 0; i < size; i++) mixed[i] = (1 - moment.share) * values[a + i] + moment.share * values[b + i];
  return mixed;
}

/** Makes a figure's controls move its scene: `draw(moment, t)`. */
function play(figure, times, draw) {
  const slider = figure.querySelector("input.time");
  const show = () => {
    const t = slider ? Number(slider.value) : 1;
    draw(between(times, t), t);
  };
  for (const canvas of figure.querySelectorAll("canvas")) keepDrawn(canvas, show);
  for (const box of figure.querySelectorAll("input[type=checkbox]")) box.addEventListener("change", show);
  if (!slider) return;

  const button = figure.querySelector("button.play");
  const clock = figure.querySelector("output.clock");
  let playing = null;
  const put = (t) => {
    slider.value = String(t);
    moved();
  };
  const moved = () => {
    const t = Number(slider.value).toFixed(2);
    clock.textContent = `t = ${t}`;
    slider.setAttribute("aria-valuetext", `t = ${t}`);
    show();
  };
  const stop = () => {
    if (playing !== null) cancelAnimationFrame(playing);
    playing = null;
    button.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-label", "Play");
    slider.step = "0.01";
  };
  const start = () => {
    const from = Number(slider.value) >= 1 ? 0 : Number(slider.value);
    let began = null;
    slider.step = "any";
    button.setAttribute("aria-pressed", "true");
    button.setAttribute("aria-label", "Pause");
    const tick = (now) => {
      began ??= now;
      const t = Math.min(1, from + (now - began) / (1000 * SECONDS));
      put(t);
      if (t < 1) playing = requestAnimationFrame(tick);
      else stop();
    };
    playing = requestAnimationFrame(tick);
  };
  slider.addEventListener("input", () => {
    stop();
    moved();
  });
  button.addEventListener("click", () => (playing === null ? start() : stop()));
  figure.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target.matches("button, input[type=checkbox]")) return;
    event.preventDefault();
    if (playing === null) start();
    else stop();
  });
}
