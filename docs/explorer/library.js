"use strict";
// The library in WebAssembly, by the functions of isentropic/c.h.
class Library {
  constructor(module) {
    this.module = module;
    this.start();
  }

  // From gzip in base64, as pages have it.
  static async unpacked(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const bytes = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    return new Library(await WebAssembly.compile(bytes));
  }

  // A refused call ends in a trap, and what it left behind is of no use: another instance takes its place.
  start() {
    const unused = () => 0, memory = () => this.wasm.memory.buffer;
    const wasi = new Proxy({
      fd_write: (file, parts, count, written) => {
        new DataView(memory()).setUint32(written, 0, true);
        return 8;
      },
      proc_exit: (code) => {
        throw new Error("exit " + code);
      },
    }, {get: (known, name) => known[name] ?? unused});
    const imports = {};
    for (const {module, name} of WebAssembly.Module.imports(this.module)) (imports[module] ??= {})[name] = wasi[name];
    this.wasm = new WebAssembly.Instance(this.module, imports).exports;
    this.wasm._initialize();
    this.words = new Map();
  }

  text(at) {
    const bytes = new Uint8Array(this.wasm.memory.buffer, at);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }

  // isentropic_apply of isentropic/c.h, or isentropic_apply_vjp: arrays by name, each a typed array of so many rows without gaps, or
  // {data, rows}. What the registry calls an output is filled.
  apply(operation, parameters, arrays, rows = 1, vjp = false) {
    const taken = [], given = Object.entries(arrays);
    const put = (bytes) => {
      const at = this.wasm.malloc(bytes.length + 1);
      new Uint8Array(this.wasm.memory.buffer).set(bytes, at);
      taken.push(at);
      return at;
    };
    const text = (value) => put(new TextEncoder().encode(value + "\0"));
    const bytes = (data) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    let code, places;
    try {
      places = given.map(([name, one]) => {
        const data = one.data ?? one, count = one.rows ?? rows;
        return [text(name), put(bytes(data)), count, data.length / count, data];
      });
      const list = put(new Uint8Array(36 * places.length)), view = new DataView(this.wasm.memory.buffer, list);
      places.forEach(([name, at, count, cols, data], i) => [36, name, at, count, cols, 0, 0, Library.types[data.constructor.name], 0]
        .forEach((field, k) => view.setUint32(36 * i + 4 * k, field, true)));
      code = this.wasm[vjp ? "isentropic_apply_vjp" : "isentropic_apply"](text(operation), text(JSON.stringify(parameters)), list,
        places.length);
    } catch (error) {
      code = error;
    }
    if (code !== 0) {
      const reason = this.text(this.wasm.isentropic_last_error());
      this.start();
      throw new Error(reason || String(code));
    }
    const outputs = this.outputs(operation, vjp);
    places.forEach(([, at, , , data], i) => {
      if (outputs.has(given[i][0])) bytes(data).set(new Uint8Array(this.wasm.memory.buffer, at, data.byteLength));
    });
    taken.forEach((at) => this.wasm.free(at));
    return arrays;
  }

  // A text that stays in memory.
  word(text) {
    if (!this.words.has(text)) {
      const bytes = new TextEncoder().encode(text + "\0"), place = this.wasm.malloc(bytes.length);
      new Uint8Array(this.wasm.memory.buffer).set(bytes, place);
      this.words.set(text, place);
    }
    return this.words.get(text);
  }

  registry() {
    return this.known ??= JSON.parse(this.text(this.wasm.isentropic_registry()));
  }

  outputs(operation, vjp) {
    const found = this.registry().find((one) => one.name === operation);
    return new Set((vjp ? found.vjp : found.arrays).filter((one) => one.output).map((one) => one.name));
  }

  map(name, parameters, x, rows = 1) {
    return this.apply(name, parameters, {x, y: new x.constructor(x.length)}, rows).y;
  }

  entropy(p) {
    return this.apply("entropy", {normalize: true}, {p, value: new Float64Array(1)}).value[0];
  }

  gamma(x, entropy) {
    const found = this.apply("gamma_for_entropy", {entropy},
      {x, gamma: new Float64Array(1), reached: new Float64Array(1), status: new Int32Array(1)});
    return {gamma: found.gamma[0], entropy: found.reached[0], status: found.status[0]};
  }
}
Library.types = {Float32Array: 1, Float64Array: 2, Int32Array: 5, BigInt64Array: 6};

// A row of scores that stays in the library's memory, with room for what a map makes of it: a call copies nothing.
class Row {
  constructor(library, x) {
    Object.assign(this, {library, x});
  }

  place() {
    const {library, x} = this, n = x.length;
    if (this.wasm === library.wasm) return;
    this.wasm = library.wasm;
    const bytes = 8 * n, room = 4096, all = this.all = this.wasm.malloc(2 * bytes + 8 + 4 * 36 + room);
    [this.scores, this.distribution, this.value] = [all, all + bytes, all + 2 * bytes];
    [this.of_map, this.of_entropy, this.parameters] = [this.value + 8, this.value + 80, this.value + 152];
    const arrays = [["x", this.scores, n], ["y", this.distribution, n], ["p", this.distribution, n], ["value", this.value, 1]]
      .flatMap(([name, data, cols]) => [36, library.word(name), data, 1, cols, 0, 0, Library.types.Float64Array, 0]);
    const words = ["entropy", '{"normalize":true}'].map((text) => library.word(text));
    Object.assign(this, {words, room});
    new Uint32Array(this.wasm.memory.buffer, this.of_map, arrays.length).set(arrays);
    new Float64Array(this.wasm.memory.buffer, this.scores, n).set(x);
  }

  // Runs the map; gives the entropy of what it made.
  map(name, parameters) {
    this.place();
    const {wasm, library, words} = this;
    try {
      const text = new Uint8Array(wasm.memory.buffer, this.parameters, this.room);
      new TextEncoder().encodeInto(JSON.stringify(parameters) + "\0", text);
      if (wasm.isentropic_apply(library.word(name), this.parameters, this.of_map, 2) === 0 &&
          wasm.isentropic_apply(words[0], words[1], this.of_entropy, 2) === 0) {
        return new Float64Array(wasm.memory.buffer, this.value, 1)[0];
      }
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    }
    const reason = library.text(wasm.isentropic_last_error());
    library.start();
    throw new Error(reason);
  }

  // What it made, to be read before the next call.
  p() {
    return new Float64Array(this.wasm.memory.buffer, this.distribution, this.x.length);
  }

  free() {
    if (this.wasm && this.wasm === this.library.wasm) this.wasm.free(this.all);
  }
}
