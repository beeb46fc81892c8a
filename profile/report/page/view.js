// The timeline as rows of slices: of one rank its device lanes and then its threads, nested; of all ranks their device
// lanes. A row holds slices that do not overlap, by start.
var timeline = json('data-timeline');

// Rows of a rank, made when it is first drawn. Slices are numbered as in its flows.
function rowsOf(rank) {
  if (rank.rows) return rank.rows;
  rank.rows = [];
  rank.where = [];  // by slice: row, index in it
  rank.launchOf = {};
  rank.launched = {};
  rank.lanes.forEach(function (lane) {
    var first = rank.rows.length, t = 0;
    for (var z = 0; z < Math.max(1, lane.depth); ++z) {
      rank.rows.push({rank: rank, lane: lane, depth: z, start: [], end: [], name: [], id: []});
    }
    for (var i = 0; i < lane.t.length; ++i) {
      t += lane.t[i];
      var row = rank.rows[first + (lane.z ? lane.z[i] : 0)];
      rank.where.push([row, row.start.length]);
      row.start.push(t);
      row.end.push(t + lane.d[i]);
      row.name.push(lane.n[i]);
      row.id.push(rank.where.length - 1);
    }
  });
  for (var f = 0; f < rank.flows.length; f += 2) {
    var launch = rank.flows[f], device = rank.flows[f + 1];
    rank.launchOf[device] = launch;
    (rank.launched[launch] = rank.launched[launch] || []).push(device);
  }
  return rank.rows;
}

function rowsToShow(chosen) {
  var rows = [];
  timeline.ranks.forEach(function (rank) {
    if (chosen !== 'all') {
      if (rank.rank === chosen) rows = rowsOf(rank);
      return;
    }
    var device = rowsOf(rank).filter(function (row) { return row.lane.device; });
    // Without a device the threads are what there is.
    rows = rows.concat(device.length ? device : rank.rows);
  });
  return rows;
}

// The first slice of a row that ends after t.
function firstAfter(row, t) {
  var low = 0, high = row.end.length;
  while (low < high) {
    var middle = (low + high) >> 1;
    if (row.end[middle] > t) high = middle; else low = middle + 1;
  }
  return low;
}

function shortName(row, i) {
  return timeline.names[row.name[i]][1];
}
function wholeName(row, i) {
  var name = timeline.names[row.name[i]];
  return name[2] || name[1];
}
// 0 computing, 1 communication, 2 memory, 3 host
function classOf(row, i) {
  return timeline.names[row.name[i]][0];
}
