// The first steps in Node. ISENTROPIC_NODE is what first_steps_node.c makes.
const isentropic = require(process.env.ISENTROPIC_NODE || './first_steps.node');

// arrays: rows x cols numbers by name, as [rows, cols, numbers].
function apply(operation, arrays, parameters = {}) {
  const given = Object.entries(arrays).map(([name, array]) => [name, ...array]);
  isentropic.apply(operation, JSON.stringify(parameters), given);
}

const x = [1, 4, Float64Array.of(2, 1, 0.1, -1)];
const p = [1, 4, new Float64Array(4)];
const entropy = [1, 1, new Float64Array(1)];
apply('entmax', {x, y: p}, {alpha: 1.3});
apply('entropy', {p, value: entropy});
console.log(...Array.from(p[2], (one) => one.toFixed(4)), 'entropy', entropy[2][0].toFixed(4));
try {
  apply('softmax', {x, y: p}, {temperature: -1});
} catch (error) {
  console.log(error.message);
}
