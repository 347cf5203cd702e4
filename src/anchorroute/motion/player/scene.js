// WebGL 2: mannequin with its shadow, floor, path, anchors, skeleton. Draws one frame when asked, holds no clock.
const FLOOR = -0.012;   // the floor's joints stand at 0 and the soles a little below them
const SUN = [0.42, 0.82, 0.38];
const SIDES = { left: [0.17, 0.43, 0.78], right: [0.88, 0.47, 0.13], middle: [0.3, 0.33, 0.38] };
const GRADES = { good: [0.11, 0.59, 0.35], near: [0.84, 0.54, 0.07], bad: [0.82, 0.13, 0.25] };

const SHADERS = {
  body: [`
    layout(location=0) in vec3 rest; layout(location=1) in vec3 normal; layout(location=2) in vec2 bones;
    layout(location=3) in float second; layout(location=4) in vec3 colour;
    uniform mat4 camera; uniform vec4 turns[22]; uniform vec3 shifts[22]; uniform float flatten; uniform vec3 sun;
    uniform float ground; out vec3 n; out vec3 tint; out vec3 at;
    vec3 turned(vec4 q, vec3 v) { vec3 t = 2.0 * cross(q.yzw, v); return v + q.x * t + cross(q.yzw, t); }
    void main() {
      int a = int(bones.x), b = int(bones.y);
      at = mix(turned(turns[a], rest) + shifts[a], turned(turns[b], rest) + shifts[b], second);
      n = normalize(mix(turned(turns[a], normal), turned(turns[b], normal), second));
      if (flatten > 0.5) at = at - sun * ((at.y - ground) / sun.y) + vec3(0, 0.002, 0);
      tint = colour;
      gl_Position = camera * vec4(at, 1);
    }`, `
    in vec3 n; in vec3 tint; in vec3 at; uniform vec3 eye; uniform vec3 sun; uniform float flatten; uniform float alpha;
    out vec4 result;
    void main() {
      if (flatten > 0.5) { result = vec4(0.09, 0.11, 0.16, 0.24); return; }
      vec3 m = normalize(n), v = normalize(eye - at), h = normalize(v + sun);
      float key = max(dot(m, sun), 0.0), sky = 0.5 + 0.5 * m.y;
      vec3 base = pow(tint, vec3(2.2));
      vec3 light = vec3(0.30, 0.32, 0.36) * mix(0.55, 1.0, sky) + vec3(0.92, 0.89, 0.84) * key
        + 0.16 * max(dot(m, normalize(vec3(-0.7, 0.2, -0.5))), 0.0) + 0.22 * max(dot(m, v), 0.0);
      vec3 c = base * light + 0.10 * pow(max(dot(m, h), 0.0), 28.0) + 0.10 * pow(1.0 - max(dot(m, v), 0.0), 4.0);
      result = vec4(pow(c, vec3(1.0 / 2.2)), 1.0) * alpha;
    }`],
  floor: [`
    layout(location=0) in vec2 corner; uniform mat4 camera; uniform vec3 centre; uniform float ground; out vec2 at;
    void main() { at = corner * 40.0 + centre.xz; gl_Position = camera * vec4(at.x, ground, at.y, 1); }`, `
    in vec2 at; uniform vec3 centre; out vec4 result;
    float lines(float pitch) {
      vec2 p = at / pitch, w = fwidth(p), g = abs(fract(p - 0.5) - 0.5);
      vec2 line = 1.0 - smoothstep(w * 0.6, w * 1.6, g);
      return max(line.x, line.y) * (1.0 - smoothstep(0.25, 0.6, max(w.x, w.y)));
    }
    void main() {
      float away = length(at - centre.xz), fade = 1.0 - smoothstep(4.0, 17.0, away);
      vec3 base = mix(vec3(0.914, 0.925, 0.941), vec3(0.955, 0.961, 0.969), fade);
      vec3 c = mix(base, vec3(0.70, 0.73, 0.77), fade * max(0.62 * lines(1.0), 0.22 * lines(0.25)));
      result = vec4(c, 1);
    }`],
  plain: [`
    layout(location=0) in vec3 place; layout(location=1) in vec4 colour; uniform mat4 camera; uniform float dot;
    out vec4 tint;
    void main() { gl_Position = camera * vec4(place, 1); gl_PointSize = dot; tint = colour; }`, `
    in vec4 tint; uniform float dot; out vec4 result;
    void main() {
      if (dot > 0.0 && length(gl_PointCoord - 0.5) > 0.5) discard;
      result = vec4(tint.rgb * tint.a, tint.a);
    }`],
  ball: [`
    layout(location=0) in vec3 place; uniform mat4 camera; uniform vec3 centre; uniform float radius; out vec3 n;
    void main() { n = place; gl_Position = camera * vec4(centre + radius * place, 1); }`, `
    in vec3 n; uniform vec3 tint; uniform vec3 sun; out vec4 result;
    void main() { result = vec4(tint * (0.62 + 0.45 * max(dot(normalize(n), sun), 0.0)), 1); }`],
};

class Scene {
  constructor(canvas) {
    this.canvas = canvas;
    const gl = this.gl = canvas.getContext("webgl2", { antialias: true, stencil: true, alpha: false });
    if (!gl) throw new Error("This page draws with WebGL 2, which this browser does not offer.");
    this.programs = {};
    for (const name in SHADERS) this.programs[name] = this.compile(...SHADERS[name]);
    this.mesh = this.meshBuffers();
    this.quad = this.vertexArray([[new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]), 2, gl.FLOAT, false]]);
    this.sphere = this.sphereBuffers(20, 12);
    this.scratch = gl.createBuffer();
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.CULL_FACE);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.pathPoints = this.buildPath();
  }

  compile(vertex, fragment) {
    const gl = this.gl, program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, "#version 300 es\nprecision highp float;\n" + text);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    const at = {};
    for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
      const name = gl.getActiveUniform(program, i).name.replace("[0]", "");
      at[name] = gl.getUniformLocation(program, name);
    }
    return { program, at };
  }

  vertexArray(attributes, indices) {
    const gl = this.gl, array = gl.createVertexArray();
    gl.bindVertexArray(array);
    attributes.forEach(([data, size, type, normalised], i) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(i);
      gl.vertexAttribPointer(i, size, type, normalised, 0, 0);
    });
    if (indices) {
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, indices, gl.STATIC_DRAW);
    }
    gl.bindVertexArray(null);
    return array;
  }

  meshBuffers() {
    const gl = this.gl, m = DATA.mesh, faces = new Uint16Array(bytesOf(m.faces).buffer);
    const array = this.vertexArray([
      [bytesOf(m.vertices), 3, gl.SHORT, true], [bytesOf(m.normals), 3, gl.BYTE, true],
      [bytesOf(m.bones), 2, gl.UNSIGNED_BYTE, false], [bytesOf(m.second), 1, gl.UNSIGNED_BYTE, true],
      [bytesOf(m.colours), 3, gl.UNSIGNED_BYTE, true],
    ], faces);
    return { array, count: faces.length };
  }

  sphereBuffers(around, up) {
    const places = [], faces = [];
    for (let i = 0; i <= up; i++) for (let k = 0; k <= around; k++) {
      const a = Math.PI * i / up, b = 2 * Math.PI * k / around;
      places.push(Math.sin(a) * Math.cos(b), Math.cos(a), Math.sin(a) * Math.sin(b));
      if (i < up && k < around) {
        const v = i * (around + 1) + k;
        faces.push(v, v + 1, v + around + 1, v + 1, v + around + 2, v + around + 1);
      }
    }
    const array = this.vertexArray([[new Float32Array(places), 3, this.gl.FLOAT, false]], new Uint16Array(faces));
    return { array, count: faces.length };
  }

  // A ribbon on the floor under the pelvis, two vertices a frame; frames without travel keep the last direction.
  buildPath() {
    const points = [];
    let side = [1, 0];
    for (let f = 0; f < FRAMES; f++) {
      const a = 3 * Math.max(f - 1, 0), b = 3 * Math.min(f + 1, LAST);
      const dx = ROOT[b] - ROOT[a], dz = ROOT[b + 2] - ROOT[a + 2], long = Math.hypot(dx, dz);
      if (long > 0.002) side = [dz / long, -dx / long];
      for (const s of [1, -1]) {
        points.push([ROOT[3 * f] + 0.013 * s * side[0], FLOOR + 0.004, ROOT[3 * f + 2] + 0.013 * s * side[1]]);
      }
    }
    return points;
  }

  use(name, camera) {
    const gl = this.gl, { program, at } = this.programs[name];
    gl.useProgram(program);
    gl.uniformMatrix4fv(at.camera, false, camera.matrix);
    if (at.sun) gl.uniform3fv(at.sun, SUN);
    if (at.ground) gl.uniform1f(at.ground, FLOOR);
    return at;
  }

  draw(camera, pose, frame, options) {
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(0.914, 0.925, 0.941, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    this.drawFloor(camera);
    this.drawBody(camera, pose, true, 1);
    if (options.path) this.drawPath(camera, frame);
    this.drawAnchors(camera, frame);
    this.drawBody(camera, pose, false, options.bones ? 0.4 : 1);
    if (options.bones) this.drawBones(camera, pose);
  }

  drawFloor(camera) {
    const gl = this.gl, at = this.use("floor", camera);
    gl.uniform3fv(at.centre, camera.target);
    gl.disable(gl.CULL_FACE);
    gl.bindVertexArray(this.quad);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    gl.enable(gl.CULL_FACE);
  }

  drawBody(camera, pose, shadow, alpha) {
    const gl = this.gl, at = this.use("body", camera);
    gl.uniform4fv(at.turns, pose.turns);
    gl.uniform3fv(at.shifts, pose.shifts);
    gl.uniform3fv(at.eye, camera.eye);
    gl.uniform1f(at.flatten, shadow ? 1 : 0);
    gl.uniform1f(at.alpha, alpha);
    if (shadow) {   // the stencil lets every pixel of the shadow darken once
      gl.enable(gl.STENCIL_TEST);
      gl.stencilFunc(gl.EQUAL, 0, 255);
      gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
      gl.disable(gl.CULL_FACE);
      gl.depthMask(false);
      gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    }
    if (shadow || alpha < 1) gl.enable(gl.BLEND);
    gl.bindVertexArray(this.mesh.array);
    if (alpha < 1) {   // depth first, so that a translucent body shows its front only
      gl.colorMask(false, false, false, false);
      gl.drawElements(gl.TRIANGLES, this.mesh.count, gl.UNSIGNED_SHORT, 0);
      gl.colorMask(true, true, true, true);
      gl.depthFunc(gl.LEQUAL);
    }
    gl.drawElements(gl.TRIANGLES, this.mesh.count, gl.UNSIGNED_SHORT, 0);
    gl.depthFunc(gl.LESS);
    gl.disable(gl.BLEND);
    gl.disable(gl.STENCIL_TEST);
    gl.enable(gl.CULL_FACE);
    gl.depthMask(true);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  // Points are [[x, y, z], [r, g, b, a]]; sizes are those of this one call.
  drawPlain(camera, kind, points, dot, onTop) {
    if (!points.length) return;
    const gl = this.gl, at = this.use("plain", camera);
    const data = new Float32Array(points.flatMap(([place, colour]) => [...place, ...colour]));
    gl.uniform1f(at.dot, dot);
    gl.bindVertexArray(null);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.scratch);
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.DYNAMIC_DRAW);
    for (const [i, size, start] of [[0, 3, 0], [1, 4, 12]]) {
      gl.enableVertexAttribArray(i);
      gl.vertexAttribPointer(i, size, gl.FLOAT, false, 28, start);
    }
    gl.enable(gl.BLEND);
    gl.disable(gl.CULL_FACE);
    gl.depthMask(false);
    if (onTop) gl.disable(gl.DEPTH_TEST);
    gl.drawArrays(kind, 0, points.length);
    gl.enable(gl.DEPTH_TEST);
    gl.depthMask(true);
    gl.enable(gl.CULL_FACE);
    gl.disable(gl.BLEND);
  }

  drawPath(camera, frame) {
    const shade = f => (f <= frame ? [0.17, 0.43, 0.78, 0.95] : [0.45, 0.5, 0.57, 0.4]);
    const ribbon = this.pathPoints.map((place, i) => [place, shade(i >> 1)]);
    this.drawPlain(camera, this.gl.TRIANGLE_STRIP, ribbon, 0, false);
    const marks = [];
    for (let f = 0; f < FRAMES; f += FPS) {
      const k = 3 * Math.round(f);
      if (k <= 3 * LAST) marks.push([[ROOT[k], FLOOR + 0.006, ROOT[k + 2]], shade(f)]);
    }
    this.drawPlain(camera, this.gl.POINTS, marks, 7 * devicePixelRatio, false);
  }

  drawAnchors(camera, frame) {
    const gl = this.gl, lines = [];
    for (const anchor of DATA.anchors) {
      const tint = GRADES[anchor.grade], [x, y, z] = anchor.place, near = Math.abs(frame / FPS - anchor.at) < 0.13;
      const at = this.use("ball", camera);
      gl.uniform3fv(at.centre, anchor.place);
      gl.uniform1f(at.radius, near ? 0.042 : 0.03);
      gl.uniform3fv(at.tint, tint);
      gl.bindVertexArray(this.sphere.array);
      gl.drawElements(gl.TRIANGLES, this.sphere.count, gl.UNSIGNED_SHORT, 0);
      lines.push([[x, y, z], [...tint, 0.5]], [[x, FLOOR, z], [...tint, 0.5]]);
      lines.push([[x, y, z], [...tint, 1]], [anchor.reached, [...tint, 1]]);
      const ring = k => [x + 0.11 * Math.cos(k * Math.PI / 16), FLOOR + 0.005, z + 0.11 * Math.sin(k * Math.PI / 16)];
      for (let k = 0; k < 32; k++) lines.push([ring(k), [...tint, 0.9]], [ring(k + 1), [...tint, 0.9]]);
      if (anchor.heading !== null) {
        const tip = [x + 0.3 * Math.sin(anchor.heading), FLOOR + 0.005, z + 0.3 * Math.cos(anchor.heading)];
        lines.push([[x, FLOOR + 0.005, z], [...tint, 1]], [tip, [...tint, 1]]);
      }
    }
    this.drawPlain(camera, gl.LINES, lines, 0, false);
  }

  drawBones(camera, pose) {
    const place = j => [pose.places[3 * j], pose.places[3 * j + 1], pose.places[3 * j + 2]], lines = [], dots = [];
    DATA.parents.forEach((parent, j) => {
      const side = DATA.joints[j].startsWith("left") ? "left" : DATA.joints[j].startsWith("right") ? "right" : "middle";
      const colour = [...SIDES[side], 1];
      dots.push([place(j), colour]);
      if (parent >= 0) lines.push([place(parent), colour], [place(j), colour]);
    });
    this.drawPlain(camera, this.gl.LINES, lines, 0, true);
    this.drawPlain(camera, this.gl.POINTS, dots, 7 * devicePixelRatio, true);
  }
}
