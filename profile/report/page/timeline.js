// Draws the timeline, zooms and pans it. Slices narrower than half a pixel melt into one.
var canvas = byId('view'), view = null;
var GUTTER = 176, AXIS = 24, ROW = 19, GAP = 6, MOST_FLOWS = 40;

function setUpTimeline() {
  view = {rows: [], tops: [], height: 0, from: 0, to: timeline.span, top: 0, selected: null, hits: null};
  onRank(function (rank) {
    view.rows = rowsToShow(rank);
    view.tops = [];
    var y = 0;
    view.rows.forEach(function (row, i) {
      if (i > 0 && row.lane !== view.rows[i - 1].lane) y += GAP;
      view.tops.push(y);
      row.index = i;
      y += ROW;
    });
    view.height = y;
    view.top = 0;
    view.selected = null;
    view.rank = rank;
    canvas.style.height = Math.max(120, Math.min(y + AXIS + 12, Math.round(window.innerHeight * 0.66))) + 'px';
    byId('cover').textContent = coverText(rank);
    document.dispatchEvent(new Event('rows'));
    draw();
  });
  canvas.addEventListener('keydown', onKey);
  canvas.addEventListener('wheel', onWheel, {passive: false});
  canvas.addEventListener('pointerdown', onDown);
  canvas.addEventListener('pointermove', onMove);
  canvas.addEventListener('pointerup', onUp);
  canvas.addEventListener('pointerleave', function () { if (view.hover) { view.hover = null; draw(); } });
  byId('zoom-in').addEventListener('click', function () { zoom(0.5, (view.from + view.to) / 2); });
  byId('zoom-out').addEventListener('click', function () { zoom(2, (view.from + view.to) / 2); });
  byId('zoom-all').addEventListener('click', showAll);
  window.addEventListener('resize', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
}

// What of the trace is not here, if anything.
function coverText(chosen) {
  var ranks = timeline.ranks.filter(function (r) { return chosen === 'all' || r.rank === chosen; });
  var slices = 0, events = 0;
  ranks.forEach(function (r) { slices += r.slices; events += r.events; });
  var text = chosen === 'all' && ranks.length > 1 ? 'Device lanes of all shown ranks; choose one rank to see its threads. ' : '';
  if (slices < events) {
    text += slices + ' of ' + events + ' events are drawn: the slowest and the median step first, device before host, ' +
            'longest first. Grey: the share of the time that the others cover.';
  }
  return text;
}

function width() { return canvas.clientWidth; }
function scale() { return (width() - GUTTER) / (view.to - view.from); }
function timeAt(x) { return view.from + (x - GUTTER) / scale(); }

function zoom(factor, center) {
  var span = Math.min(timeline.span, Math.max(20, (view.to - view.from) * factor));
  move(center - (center - view.from) * span / (view.to - view.from), span);
}
function move(from, span) {
  view.from = Math.max(0, Math.min(timeline.span - span, from));
  view.to = view.from + span;
  draw();
}
function scrollTo(top) {
  view.top = Math.max(0, Math.min(Math.max(0, view.height + AXIS + 8 - canvas.clientHeight), top));
}
function showAll() {
  view.top = 0;
  move(0, timeline.span);
}
function select(row, i) {
  view.selected = {row: row, i: i};
  var rank = row.rank, id = row.id[i], flow = '';
  if (rank.launchOf[id] !== undefined) {
    var launch = rank.where[rank.launchOf[id]];
    flow = '; launched by ' + shortName(launch[0], launch[1]) + ', ' + time(row.start[i] - launch[0].start[launch[1]]) + ' before';
  } else if (rank.launched[id]) {
    var device = rank.where[rank.launched[id][0]];
    flow = '; launches ' + shortName(device[0], device[1]) +
           (rank.launched[id].length > 1 ? ' and ' + (rank.launched[id].length - 1) + ' more' : '');
  }
  byId('slice').textContent = wholeName(row, i) + ': ' + time(row.end[i] - row.start[i]) + ' at ' + time(row.start[i]) +
                              ', rank ' + rank.rank + ', ' + row.lane.name + flow;
}
// Brings a slice into view, and selects it.
function reveal(row, i) {
  var span = view.to - view.from, dur = row.end[i] - row.start[i], y = view.tops[row.index];
  if (dur > span || dur < span / 50) span = Math.min(timeline.span, Math.max(20, dur * 12));
  if (y < view.top || y + ROW > view.top + canvas.clientHeight - AXIS) scrollTo(y - canvas.clientHeight / 2);
  select(row, i);
  move((row.start[i] + row.end[i]) / 2 - span / 2, span);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  var span = view.to - view.from, center = (view.from + view.to) / 2, key = event.key.toLowerCase();
  var actions = {
    'w': function () { zoom(0.67, center); }, '+': function () { zoom(0.67, center); }, '=': function () { zoom(0.67, center); },
    's': function () { zoom(1.5, center); }, '-': function () { zoom(1.5, center); },
    'a': function () { move(view.from - span * 0.15, span); }, 'arrowleft': function () { move(view.from - span * 0.15, span); },
    'd': function () { move(view.from + span * 0.15, span); }, 'arrowright': function () { move(view.from + span * 0.15, span); },
    'arrowup': function () { scrollTo(view.top - 3 * ROW); draw(); }, 'arrowdown': function () { scrollTo(view.top + 3 * ROW); draw(); },
    '0': showAll, 'home': showAll,
    'f': function () {
      var s = view.selected;
      if (s) move((s.row.start[s.i] + s.row.end[s.i]) / 2 - (s.row.end[s.i] - s.row.start[s.i]), 2 * Math.max(10, s.row.end[s.i] - s.row.start[s.i]));
    },
    'n': function () { findNext(event.shiftKey ? -1 : 1); },
    '/': function () { byId('find').focus(); },
    'escape': function () { view.selected = null; byId('slice').textContent = ''; draw(); }
  };
  if (!actions[key]) return;
  event.preventDefault();
  actions[key]();
}
function onWheel(event) {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.offsetX));
  } else if (event.shiftKey) {
    event.preventDefault();
    var span = view.to - view.from;
    move(view.from + (event.deltaY || event.deltaX) / (width() - GUTTER) * span, span);
  }
}
function onDown(event) {
  view.drag = {x: event.clientX, y: event.clientY, from: view.from, top: view.top, moved: false};
  canvas.setPointerCapture(event.pointerId);
}
function onMove(event) {
  var drag = view.drag;
  if (!drag) {
    var hover = sliceAt(event.offsetX, event.offsetY), before = view.hover;
    view.hover = hover;
    canvas.title = hover ? wholeName(hover.row, hover.i) + '\n' + time(hover.row.end[hover.i] - hover.row.start[hover.i]) : '';
    if ((hover && hover.row.id[hover.i]) !== (before && before.row.id[before.i])) draw();
    return;
  }
  if (Math.abs(event.clientX - drag.x) + Math.abs(event.clientY - drag.y) > 4) drag.moved = true;
  if (!drag.moved) return;
  scrollTo(drag.top - (event.clientY - drag.y));
  move(drag.from - (event.clientX - drag.x) / scale(), view.to - view.from);
}
function onUp(event) {
  if (view.drag && !view.drag.moved) {
    var hit = sliceAt(event.offsetX, event.offsetY);
    if (hit) select(hit.row, hit.i);
    draw();
  }
  view.drag = null;
}
function sliceAt(x, y) {
  if (x < GUTTER || y < AXIS) return null;
  var at = timeAt(x), inside = y - AXIS + view.top;
  for (var r = 0; r < view.rows.length; ++r) {
    if (inside < view.tops[r] || inside >= view.tops[r] + ROW) continue;
    var row = view.rows[r], i = firstAfter(row, at - 1 / scale());
    return i < row.start.length && row.start[i] <= at + 1 / scale() ? {row: row, i: i} : null;
  }
  return null;
}

function draw() {
  var ratio = window.devicePixelRatio || 1, w = width(), h = canvas.clientHeight;
  if (!w || !h) return;
  canvas.width = w * ratio;
  canvas.height = h * ratio;
  var g = canvas.getContext('2d');
  g.scale(ratio, ratio);
  g.clearRect(0, 0, w, h);
  g.font = '11px system-ui, sans-serif';
  var drawn = {slices: 0, names: 0, flows: 0, depth: 0, left: Math.max(0, view.top), colors: [color('c0'), color('c1'), color('c2'), color('ch')],
               ink: color('ink'), dim: color('dim'), line: color('line'), paper: color('paper'), on: color('on')};
  drawAxis(g, w, h, drawn);
  g.save();
  g.beginPath();
  g.rect(GUTTER, AXIS, w - GUTTER, h - AXIS);
  g.clip();
  view.rows.forEach(function (row, r) {
    var y = AXIS + view.tops[r] - view.top;
    if (y + ROW < AXIS || y > h) return;
    drawShare(g, row, y, drawn);
    drawRow(g, row, y, w, drawn);
  });
  drawFlows(g, drawn);
  g.restore();
  drawLabels(g, w, h, drawn);
  var data = canvas.dataset;
  data.from = view.from;
  data.to = view.to;
  data.slices = drawn.slices;
  data.names = drawn.names;
  data.flows = drawn.flows;
  data.depth = drawn.depth;
  data.rows = view.rows.length;
}

function drawAxis(g, w, h, drawn) {
  var span = view.to - view.from, step = tickStep(span, Math.max(2, Math.floor((w - GUTTER) / 110)));
  g.fillStyle = drawn.dim;
  g.strokeStyle = drawn.line;
  g.lineWidth = 1;
  g.beginPath();
  for (var t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    var x = Math.round(GUTTER + (t - view.from) * scale()) + 0.5;
    g.moveTo(x, AXIS - 6);
    g.lineTo(x, h);
    if (x < w - 60) g.fillText(time(Math.round(t)), x + 3, 14);
  }
  g.stroke();
}

// The share of each column that slices cover which are not here.
function drawShare(g, row, y, drawn) {
  var share = row.lane.share;
  if (!share || row.depth > 0) return;
  var column = timeline.span / share.length;
  g.fillStyle = drawn.dim;
  for (var c = Math.max(0, Math.floor(view.from / column)); c < share.length && c * column < view.to; ++c) {
    if (share[c] === '0') continue;
    g.globalAlpha = 0.08 + 0.3 * share[c] / 9;
    g.fillRect(GUTTER + (c * column - view.from) * scale(), y + 1, Math.max(0.6, column * scale()), ROW - 2);
  }
  g.globalAlpha = 1;
}

function drawRow(g, row, y, w, drawn) {
  var s = scale(), done = -1, hits = view.hits;
  for (var i = firstAfter(row, view.from); i < row.start.length && row.start[i] < view.to; ++i) {
    var x = Math.max(GUTTER - 2, GUTTER + (row.start[i] - view.from) * s), end = Math.min(w + 2, GUTTER + (row.end[i] - view.from) * s);
    var hit = hits && hits[row.name[i]];
    if (end - done < 0.5 && !hit) continue;
    if (x < done) x = done;
    var wide = Math.max(0.7, end - x - (end - x > 3 ? 0.6 : 0)), selected = view.selected && view.selected.row === row && view.selected.i === i;
    g.fillStyle = drawn.colors[classOf(row, i)];
    g.globalAlpha = hits && !hit && !selected ? 0.18 : 1 - 0.12 * (row.name[i] % 3);
    g.fillRect(x, y + 1, wide, ROW - 2);
    g.globalAlpha = 1;
    done = x + wide;
    ++drawn.slices;
    drawn.depth = Math.max(drawn.depth, row.depth + 1);
    if (hit || selected || (view.hover && view.hover.row === row && view.hover.i === i)) {
      g.strokeStyle = drawn.ink;
      g.lineWidth = selected ? 2 : 1;
      g.strokeRect(x + 0.5, y + 1.5, Math.max(1, wide - 1), ROW - 3);
    }
    if (wide > 22) {
      var name = shortName(row, i), room = Math.floor((wide - 6) / 5.9);
      g.fillStyle = hits && !hit && !selected ? drawn.dim : drawn.on;
      g.fillText(name.length > room ? name.slice(0, Math.max(1, room - 1)) + '\u2026' : name, x + 3, y + 13.5, wide - 5);
      ++drawn.names;
    }
  }
}

// Of what is selected or under the mouse; of everything in view where that is little.
function drawFlows(g, drawn) {
  var s = scale(), shown = new Map();
  view.rows.forEach(function (row) { shown.set(row, true); });
  function arrow(rank, launch, device, strong) {
    var a = rank.where[launch], b = rank.where[device];
    if (!shown.has(a[0]) || !shown.has(b[0])) return;
    var x1 = GUTTER + (a[0].start[a[1]] - view.from) * s, y1 = AXIS + view.tops[a[0].index] - view.top + ROW / 2;
    var x2 = GUTTER + (b[0].start[b[1]] - view.from) * s, y2 = AXIS + view.tops[b[0].index] - view.top + ROW / 2;
    if (Math.max(x1, x2) < GUTTER || Math.min(x1, x2) > width()) return;
    var bend = Math.max(12, Math.abs(x2 - x1) / 2);
    g.strokeStyle = g.fillStyle = drawn.ink;
    g.globalAlpha = strong ? 0.95 : 0.35;
    g.lineWidth = strong ? 1.6 : 0.8;
    g.beginPath();
    g.moveTo(x1, y1);
    g.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    g.stroke();
    g.beginPath();
    g.moveTo(x2, y2);
    g.lineTo(x2 - 6, y2 - 3);
    g.lineTo(x2 - 6, y2 + 3);
    g.fill();
    g.globalAlpha = 1;
    ++drawn.flows;
  }
  function arrowsOf(marked) {
    if (!marked) return;
    var rank = marked.row.rank, id = marked.row.id[marked.i];
    if (rank.launchOf[id] !== undefined) arrow(rank, rank.launchOf[id], id, true);
    (rank.launched[id] || []).slice(0, MOST_FLOWS).forEach(function (device) { arrow(rank, id, device, true); });
  }
  if (view.rank !== 'all' && view.rows.length) {
    var rank = view.rows[0].rank, inside = [];
    view.rows.forEach(function (row) {
      if (!row.lane.device || inside.length > MOST_FLOWS) return;
      for (var i = firstAfter(row, view.from); i < row.start.length && row.start[i] < view.to && inside.length <= MOST_FLOWS; ++i) {
        if (rank.launchOf[row.id[i]] !== undefined) inside.push(row.id[i]);
      }
    });
    if (inside.length <= MOST_FLOWS) inside.forEach(function (id) { arrow(rank, rank.launchOf[id], id, false); });
  }
  arrowsOf(view.selected);
  arrowsOf(view.hover);
}

function drawLabels(g, w, h, drawn) {
  g.fillStyle = drawn.paper;
  g.fillRect(0, 0, GUTTER - 4, h);
  g.save();
  g.beginPath();
  g.rect(0, AXIS, w, h - AXIS);
  g.clip();
  view.rows.forEach(function (row, r) {
    if (row.depth > 0) return;
    var y = AXIS + view.tops[r] - view.top;
    if (y > h || y + ROW * Math.max(1, row.lane.depth) < AXIS) return;
    if (r > 0) {
      g.strokeStyle = drawn.line;
      g.lineWidth = 1;
      g.beginPath();
      g.moveTo(0, Math.round(y - GAP / 2) + 0.5);
      g.lineTo(w, Math.round(y - GAP / 2) + 0.5);
      g.stroke();
    }
    var label = (view.rank === 'all' ? row.rank.rank + ' \u00b7 ' : '') + row.lane.name;
    g.fillStyle = row.lane.device ? drawn.ink : drawn.dim;
    g.fillText(label.length > 28 ? label.slice(0, 27) + '\u2026' : label, 6, Math.max(y, AXIS) + 13.5, GUTTER - 16);
  });
  g.restore();
  if (view.height + AXIS + 8 > h) {
    var room = h - AXIS, all = view.height + 8;
    g.fillStyle = drawn.dim;
    g.globalAlpha = 0.5;
    g.fillRect(w - 5, AXIS + room * view.top / all, 4, Math.max(16, room * room / all));
    g.globalAlpha = 1;
  }
}

if (canvas && timeline.ranks.length) setUpTimeline();
