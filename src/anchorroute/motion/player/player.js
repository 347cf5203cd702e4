// The clock, the camera and the controls.
const $ = id => document.getElementById(id);
const GRADE_CSS = { good: "var(--good)", near: "var(--near)", bad: "var(--bad)" };
const state = { frame: 0, playing: false, speed: 1, repeat: true, follow: false, bones: false, path: true };
const pose = newPose();
let scene, dirty = true, last = 0;

class Camera {
  constructor() { this.reset(); }

  // From where the body faces first and a little above, far enough to hold the whole path.
  reset() {
    let low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
    const hold = (x, y, z) => [x, y, z].forEach((v, c) => { low[c] = Math.min(low[c], v); high[c] = Math.max(high[c], v); });
    for (let f = 0; f < FRAMES; f++) hold(ROOT[3 * f], ROOT[3 * f + 1], ROOT[3 * f + 2]);
    DATA.anchors.forEach(anchor => hold(...anchor.place));
    const wide = Math.hypot(high[0] - low[0], high[2] - low[2]);
    this.home = [(low[0] + high[0]) / 2, 0.82, (low[2] + high[2]) / 2];
    const ahead = rotate(poseAt(0, pose).turns, 0, 0, 0, 1);
    this.yaw = Math.atan2(ahead[0], ahead[2]) + 0.6;
    this.pitch = 0.26;
    this.distance = Math.min(3.9 + 0.7 * wide, 8.5);
    this.pan = [0, 0, 0];
    state.follow = wide > 6.5;
    $("follow").checked = state.follow;
    this.target = [...this.home];
    dirty = true;
  }

  update(aspect, pelvis) {
    const wish = state.follow ? [pelvis[0], 0.85 + 0.4 * (pelvis[1] - 0.95), pelvis[2]] : this.home;
    for (let c = 0; c < 3; c++) this.target[c] = wish[c] + this.pan[c];
    const flat = Math.cos(this.pitch) * this.distance;
    this.back = [Math.sin(this.yaw) * flat, Math.sin(this.pitch) * this.distance, Math.cos(this.yaw) * flat];
    this.eye = this.target.map((v, c) => v + this.back[c]);
    this.eye[1] = Math.max(this.eye[1], 0.05);
    this.right = [Math.cos(this.yaw), 0, -Math.sin(this.yaw)];
    const z = unit(this.eye.map((v, c) => v - this.target[c])), x = unit(cross([0, 1, 0], z)), y = cross(z, x);
    this.up = y;
    const d = v => -(v[0] * this.eye[0] + v[1] * this.eye[1] + v[2] * this.eye[2]);
    const view = [x[0], y[0], z[0], 0, x[1], y[1], z[1], 0, x[2], y[2], z[2], 0, d(x), d(y), d(z), 1];
    // On a narrow page the horizontal angle must not close in on the body.
    const f = 1 / Math.tan(0.31) * Math.min(1, Math.max(aspect, 0.45)), near = 0.05, far = 80;
    const lift = document.querySelector("footer").offsetHeight / $("view").clientHeight;   // the bar hides that much
    const lens = [f / aspect, 0, 0, 0, 0, f, 0, 0, 0, -lift, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0];
    this.matrix = product(lens, view);
  }
}

const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = v => { const n = Math.hypot(...v); return v.map(x => x / n); };
function product(a, b) {
  const out = new Float32Array(16);
  for (let c = 0; c < 4; c++) for (let r = 0; r < 4; r++) for (let k = 0; k < 4; k++) out[4 * c + r] += a[4 * k + r] * b[4 * c + k];
  return out;
}

function seek(frame) {
  state.frame = Math.min(Math.max(frame, 0), LAST);
  dirty = true;
}

function play(on) {
  if (on && state.frame >= LAST) state.frame = 0;
  state.playing = on;
  if (!on) seek(Math.round(state.frame));
  $("play").classList.toggle("on", on);
  $("play").setAttribute("aria-label", on ? "pause" : "play");
}

function tick(now) {
  const passed = Math.min((now - last) / 1000, 0.1);
  last = now;
  if (state.playing) {
    const frame = state.frame + passed * state.speed * FPS;
    if (frame < LAST) state.frame = frame;
    else if (!state.repeat) { state.frame = LAST; play(false); }
    else if (ABOUT.loop) state.frame = frame % LAST;
    else state.frame = frame > LAST + 0.4 * FPS ? 0 : frame;   // stands on the last pose before it starts again
    dirty = true;
  }
  if (dirty) render();
  requestAnimationFrame(tick);
}

function render() {
  dirty = false;
  const view = $("view"), ratio = devicePixelRatio || 1;
  const width = Math.round(view.clientWidth * ratio), height = Math.round(view.clientHeight * ratio);
  if (view.width !== width || view.height !== height) { view.width = width; view.height = height; }
  const frame = Math.min(state.frame, LAST);
  poseAt(frame, pose);
  camera.update(width / height, pose.places);
  scene.draw(camera, pose, frame, state);
  const whole = Math.round(frame);
  $("clock").textContent = `${(frame / FPS).toFixed(2)} s of ${(LAST / FPS).toFixed(2)} s · frame ${whole} of ${LAST}`;
  drawTrack(frame);
  $("track").setAttribute("aria-valuenow", whole);
  document.body.dataset.frame = whole;
  if (!state.playing) document.body.dataset.joints = Array.from(pose.places, v => v.toFixed(4)).join(" ");
  document.querySelectorAll("#anchor-rows tr").forEach((row, i) =>
    row.classList.toggle("now", Math.abs(DATA.anchors[i].at - frame / FPS) < 0.13));
}

// Time from left to right: anchors as diamonds above, the feet's contacts as bars below.
const TRACK_PAD = 10;
function drawTrack(frame) {
  const track = $("track"), ratio = devicePixelRatio || 1, w = track.clientWidth, h = track.clientHeight;
  track.width = Math.round(w * ratio);
  track.height = Math.round(h * ratio);
  const c = track.getContext("2d"), x = f => TRACK_PAD + (w - 2 * TRACK_PAD) * f / LAST;
  c.scale(ratio, ratio);
  c.font = "10px system-ui, sans-serif";
  c.fillStyle = "#e3e7ec";
  c.fillRect(x(0), 16, x(LAST) - x(0), 4);
  c.fillStyle = "#2c6ec8";
  c.fillRect(x(0), 16, x(frame) - x(0), 4);
  c.fillStyle = "#8a919c";
  const pitch = [0.5, 1, 2, 5, 10, 30, 60, 300].find(s => (w * s * FPS) / LAST > 55) || 600;
  for (let s = 0; s <= LAST / FPS + 1e-6; s += pitch) {
    c.fillRect(x(s * FPS), 21, 1, 4);
    c.fillText(`${+s.toFixed(1)} s`, x(s * FPS) + 3, 30);
  }
  [["left_foot", "#2c6ec8", 34], ["right_foot", "#e07820", 40]].forEach(([joint, colour, top]) => {
    c.fillStyle = colour;
    c.globalAlpha = 0.75;
    ABOUT.contacts[joint].forEach(([a, b]) => c.fillRect(x(a), top, Math.max(x(Math.min(b + 1, LAST)) - x(a), 1.5), 3.5));
    c.globalAlpha = 1;
  });
  const style = getComputedStyle(document.documentElement);
  DATA.anchors.forEach(anchor => {
    c.fillStyle = style.getPropertyValue("--" + anchor.grade);
    const at = x(Math.min(anchor.at * FPS, LAST));
    c.beginPath();
    c.moveTo(at, 1); c.lineTo(at + 5, 6.5); c.lineTo(at, 12); c.lineTo(at - 5, 6.5);
    c.fill();
  });
  c.fillStyle = "#23272e";
  c.fillRect(x(frame) - 1, 12, 2, 33);
  c.beginPath();
  c.arc(x(frame), 18, 6, 0, 7);
  c.fill();
}

function listAnchors() {
  if (!DATA.anchors.length) return;
  $("anchors").hidden = false;
  const worst = Math.max(...DATA.anchors.map(anchor => anchor.residual));
  $("anchor-summary").textContent = `${DATA.anchors.length}, worst ${millimetres(worst)}`;
  DATA.anchors.forEach(anchor => {
    const row = $("anchor-rows").insertRow();
    row.insertCell().textContent = `${anchor.at.toFixed(2)} s`;
    row.insertCell().textContent = anchor.joint.replaceAll("_", " ") + (anchor.free ? ` (${anchor.free} free)` : "");
    const cell = row.insertCell();
    cell.textContent = millimetres(anchor.residual);
    cell.style.setProperty("--c", GRADE_CSS[anchor.grade]);
    row.onclick = () => { play(false); seek(Math.round(anchor.at * FPS)); };
  });
}
const millimetres = metres => (metres < 0.00995 ? `${(1000 * metres).toFixed(1)} mm` : metres < 0.1 ? `${(1000 * metres).toFixed(0)} mm` : `${(100 * metres).toFixed(0)} cm`);

function listenToPointers(view) {
  const fingers = new Map();
  let pinch = 0;
  view.onpointerdown = e => { fingers.set(e.pointerId, e); view.setPointerCapture(e.pointerId); view.classList.add("dragging"); pinch = 0; };
  view.onpointerup = view.onpointercancel = e => { fingers.delete(e.pointerId); if (!fingers.size) view.classList.remove("dragging"); };
  view.onpointermove = e => {
    const before = fingers.get(e.pointerId);
    if (!before) return;
    const dx = e.clientX - before.clientX, dy = e.clientY - before.clientY;
    fingers.set(e.pointerId, e);
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()], apart = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
      if (pinch) zoom(pinch / apart);
      pinch = apart;
    } else if (e.shiftKey || e.buttons & 6) {
      const k = 0.62 * camera.distance / view.clientHeight;
      for (let c = 0; c < 3; c++) camera.pan[c] += k * (dy * camera.up[c] - dx * camera.right[c]);
    } else {
      camera.yaw -= 0.008 * dx;
      camera.pitch = Math.min(Math.max(camera.pitch + 0.006 * dy, -0.1), 1.54);
    }
    dirty = true;
  };
  const zoom = factor => { camera.distance = Math.min(Math.max(camera.distance * factor, 0.8), 30); dirty = true; };
  view.addEventListener("wheel", e => { e.preventDefault(); zoom(Math.exp(0.0012 * e.deltaY)); }, { passive: false });
  view.oncontextmenu = e => e.preventDefault();
}

function listenToControls() {
  const track = $("track");
  const scrub = e => {
    const box = track.getBoundingClientRect();
    seek(Math.round(LAST * (e.clientX - box.left - TRACK_PAD) / (box.width - 2 * TRACK_PAD)));
  };
  track.onpointerdown = e => { track.setPointerCapture(e.pointerId); play(false); scrub(e); };
  track.onpointermove = e => { if (e.buttons) scrub(e); };
  track.setAttribute("aria-valuemax", LAST);
  $("play").onclick = () => play(!state.playing);
  $("speed").onchange = e => { state.speed = +e.target.value; };
  for (const name of ["repeat", "follow", "bones", "path"]) {
    $(name).onchange = e => { state[name] = e.target.checked; dirty = true; };
  }
  $("reset").onclick = () => camera.reset();
  const toggle = name => () => { $(name).checked = state[name] = !state[name]; dirty = true; };
  const step = by => { play(false); seek(Math.round(state.frame) + by); };
  const keys = {
    " ": () => play(!state.playing), ArrowLeft: e => step(e.shiftKey ? -10 : -1), ArrowRight: e => step(e.shiftKey ? 10 : 1),
    Home: () => step(-FRAMES), End: () => step(FRAMES), f: toggle("follow"), s: toggle("bones"), p: toggle("path"),
    r: () => camera.reset(),
  };
  addEventListener("keydown", e => {
    const act = keys[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey || e.target.tagName === "SELECT") return;
    if (e.key === " " && e.target.tagName === "BUTTON" && e.target.id !== "play") return;
    e.preventDefault();
    act(e);
  });
  addEventListener("resize", () => { dirty = true; });
}

let camera;
function start() {
  $("text").textContent = ABOUT.text || "Motion";
  const facts = [`${FRAMES} frames at ${+FPS.toFixed(3)} fps`];
  if (ABOUT.model) facts.push(`model ${ABOUT.model}`);
  if (ABOUT.seed !== null) facts.push(`seed ${ABOUT.seed}`);
  if (ABOUT.loop) facts.push("loops");
  if (ABOUT.in_place) facts.push("in place");
  $("about").textContent = facts.join(" · ");
  try {
    scene = new Scene($("view"));
  } catch (error) {
    $("failure").hidden = false;
    $("failure").textContent = error.message;
    return;
  }
  camera = new Camera();
  listAnchors();
  listenToPointers($("view"));
  listenToControls();
  // page.html#frame=30 opens on that frame, paused; #bones and #follow switch those on.
  const wishes = new URLSearchParams(location.hash.slice(1));
  for (const name of ["bones", "follow"]) if (wishes.has(name)) $(name).checked = state[name] = true;
  for (const name of ["yaw", "pitch", "distance"]) if (wishes.has(name)) camera[name] = +wishes.get(name);
  if (wishes.has("frame")) seek(Math.round(+wishes.get("frame")) || 0);
  else play(true);
  render();
  document.body.dataset.ready = "yes";
  requestAnimationFrame(now => { last = now; tick(now); });
}
start();
