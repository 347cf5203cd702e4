// The motion as the page holds it, and its forward kinematics: the same body as everywhere, quaternions (w, x, y, z).
const DATA = JSON.parse(document.getElementById("motion-data").textContent);

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
const floats = text => new Float32Array(bytesOf(text).buffer);

const ABOUT = DATA.about, FRAMES = ABOUT.frames, FPS = ABOUT.fps, LAST = FRAMES - 1, JOINTS = DATA.parents.length;
const ROOT = floats(DATA.root), TURNS = floats(DATA.rotations), REST = DATA.rest;

const restPlaces = new Float32Array(3 * JOINTS);
for (let j = 1; j < JOINTS; j++) {
  for (let c = 0; c < 3; c++) restPlaces[3 * j + c] = restPlaces[3 * DATA.parents[j] + c] + REST[3 * j + c];
}

function multiply(a, ai, b, bi, out, oi) {
  const aw = a[ai], ax = a[ai + 1], ay = a[ai + 2], az = a[ai + 3];
  const bw = b[bi], bx = b[bi + 1], by = b[bi + 2], bz = b[bi + 3];
  out[oi] = aw * bw - ax * bx - ay * by - az * bz;
  out[oi + 1] = aw * bx + ax * bw + ay * bz - az * by;
  out[oi + 2] = aw * by - ax * bz + ay * bw + az * bx;
  out[oi + 3] = aw * bz + ax * by - ay * bx + az * bw;
}

function rotate(q, qi, x, y, z) {
  const w = q[qi], a = q[qi + 1], b = q[qi + 2], c = q[qi + 3];
  const tx = 2 * (b * z - c * y), ty = 2 * (c * x - a * z), tz = 2 * (a * y - b * x);
  return [x + w * tx + b * tz - c * ty, y + w * ty + c * tx - a * tz, z + w * tz + a * ty - b * tx];
}

// Turns, places and skinning offsets of all joints at a frame that may lie between two.
function poseAt(frame, pose) {
  const before = Math.min(Math.floor(frame), LAST - 1), share = frame - before, step = 4 * JOINTS;
  for (let j = 0; j < JOINTS; j++) {
    const a = before * step + 4 * j, b = a + step;
    let dot = 0, norm = 0;
    for (let c = 0; c < 4; c++) dot += TURNS[a + c] * TURNS[b + c];
    for (let c = 0; c < 4; c++) {
      const v = (1 - share) * TURNS[a + c] + (dot < 0 ? -share : share) * TURNS[b + c];
      pose.local[4 * j + c] = v;
      norm += v * v;
    }
    for (let c = 0; c < 4; c++) pose.local[4 * j + c] /= Math.sqrt(norm);
    if (j === 0) {
      for (let c = 0; c < 4; c++) pose.turns[c] = pose.local[c];
      for (let c = 0; c < 3; c++) pose.places[c] = (1 - share) * ROOT[3 * before + c] + share * ROOT[3 * before + 3 + c];
    } else {
      const p = DATA.parents[j];
      multiply(pose.turns, 4 * p, pose.local, 4 * j, pose.turns, 4 * j);
      const bone = rotate(pose.turns, 4 * p, REST[3 * j], REST[3 * j + 1], REST[3 * j + 2]);
      for (let c = 0; c < 3; c++) pose.places[3 * j + c] = pose.places[3 * p + c] + bone[c];
    }
    const back = rotate(pose.turns, 4 * j, restPlaces[3 * j], restPlaces[3 * j + 1], restPlaces[3 * j + 2]);
    for (let c = 0; c < 3; c++) pose.shifts[3 * j + c] = pose.places[3 * j + c] - back[c];
  }
  return pose;
}

const newPose = () => ({
  local: new Float32Array(4 * JOINTS), turns: new Float32Array(4 * JOINTS),
  places: new Float32Array(3 * JOINTS), shifts: new Float32Array(3 * JOINTS),
});
