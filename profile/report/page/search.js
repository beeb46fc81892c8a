// Search by parts of names: matches are marked, counted, and visited one after another.
var found = {list: [], at: -1};

function findAll() {
  var query = byId('find').value.trim().toLowerCase();
  found = {list: [], at: -1};
  view.hits = null;
  var text = '';
  if (query) {
    view.hits = timeline.names.map(function (name) {
      return name[1].toLowerCase().indexOf(query) >= 0 || Boolean(name[2] && name[2].toLowerCase().indexOf(query) >= 0);
    });
    view.rows.forEach(function (row) {
      for (var i = 0; i < row.start.length; ++i) {
        if (view.hits[row.name[i]]) found.list.push([row, i]);
      }
    });
    found.list.sort(function (a, b) { return a[0].start[a[1]] - b[0].start[b[1]]; });
    text = found.list.length + (found.list.length === 1 ? ' match' : ' matches') + elsewhere();
  }
  byId('found').textContent = text;
  draw();
}
// Ranks that are not shown now and hold matches.
function elsewhere() {
  if (view.rank === 'all') return '';
  var others = timeline.ranks.filter(function (rank) {
    return rank.rank !== view.rank && rank.lanes.some(function (lane) {
      return lane.n.some(function (name) { return view.hits[name]; });
    });
  });
  if (!others.length) return '';
  return '; also on ' + (others.length === 1 ? 'rank ' + others[0].rank : others.length + ' other ranks');
}
function findNext(direction) {
  var n = found.list.length;
  if (!n) return;
  found.at = found.at < 0 ? (direction > 0 ? 0 : n - 1) : (found.at + direction + n) % n;
  byId('found').textContent = (found.at + 1) + ' of ' + n + elsewhere();
  reveal(found.list[found.at][0], found.list[found.at][1]);
}

if (view) {
  byId('find').addEventListener('input', findAll);
  byId('find').addEventListener('keydown', function (event) {
    if (event.key === 'Enter') findNext(event.shiftKey ? -1 : 1);
    if (event.key === 'Escape') canvas.focus();
  });
  byId('find-next').addEventListener('click', function () { findNext(1); });
  byId('find-previous').addEventListener('click', function () { findNext(-1); });
  document.addEventListener('rows', findAll);
  document.addEventListener('keydown', function (event) {
    if (event.key !== '/' || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    byId('find').focus();
  });
}
