"use strict";
// The library in WebAssembly: operations by name on Float32Array or Float64Array, rows one after the other.
class Library {
  constructor(module) {
    this.module = module;
    this.start();
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
  }

  text(at) {
    const bytes = new Uint8Array(this.wasm.memory.buffer, at);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }

  // Arrays and texts go in by address; arrays in `out` come back.
  call(name, given, out = []) {
    const taken = [];
    const address = (value) => {
      if (typeof value === "number") return value;
      const data = typeof value === "string" ? new TextEncoder().encode(value + "\0") :
        new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
      const at = this.wasm.er_alloc(data.length + 1);
      new Uint8Array(this.wasm.memory.buffer, at, data.length).set(data);
      taken.push([at, value]);
      return at;
    };
    let result;
    try {
      result = this.wasm[name](...given.map(address));
    } catch (error) {
      const reason = this.text(this.wasm.er_error());
      this.start();
      throw new Error(reason || String(error));
    }
    for (const [at, value] of taken) {
      if (out.includes(value)) value.set(new value.constructor(this.wasm.memory.buffer.slice(at, at + value.byteLength)));
      this.wasm.er_free(at);
    }
    return result;
  }

  static parameters(given) {
    return Object.entries(given).map(([name, value]) => name + "=" + value).join("&");
  }

  registry() {
    return JSON.parse(this.text(this.call("er_registry", [])));
  }

  map(name, parameters, x, rows = 1) {
    const p = new x.constructor(x.length);
    this.call("er_map", [name, Library.parameters(parameters), x.BYTES_PER_ELEMENT, x, p, rows, x.length / rows], [p]);
    return p;
  }

  entropy(p) {
    const value = new Float64Array(1);
    this.call("er_measure", ["entropy", "normalize=true", p.BYTES_PER_ELEMENT, p, 0, 0, value, 1, p.length], [value]);
    return value[0];
  }

  gamma(x, entropy) {
    const gamma = new Float64Array(1), found = new Float64Array(1), status = new Uint8Array(1);
    this.call("er_gamma", ["entropy=" + entropy, x.BYTES_PER_ELEMENT, x, gamma, found, status, 1, x.length], [gamma, found, status]);
    return {gamma: gamma[0], entropy: found[0], status: status[0]};
  }
}
