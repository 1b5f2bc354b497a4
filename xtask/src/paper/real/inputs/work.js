// JSON there and back, and a sort: a mark for each piece.
const fs = require('fs');
const out = fs.openSync(process.argv[2], 'a');
let seed = 1;
function piece() {
  const rows = [];
  for (let i = 0; i < 1500; i++) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    rows.push({ id: i, name: 'row ' + seed, tags: [seed % 7, seed % 11] });
  }
  const back = JSON.parse(JSON.stringify(rows));
  back.sort((a, b) => (a.name < b.name ? -1 : 1));
  fs.writeSync(out, '.');
  setImmediate(piece);
}
piece();
