// Tables sort by a click or Enter on a header, and show the chosen rank only. Commands copy by a click.
function sortTable(header) {
  var table = header.closest('table'), body = table.tBodies[0];
  var column = Array.prototype.indexOf.call(header.parentNode.children, header);
  var descending = header.getAttribute('aria-sort') !== 'descending';
  Array.prototype.forEach.call(header.parentNode.children, function (other) { other.removeAttribute('aria-sort'); });
  header.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
  var rows = Array.prototype.map.call(body.rows, function (row) {
    var text = row.cells[column].textContent;
    return {row: row, text: text, number: parseFloat(text)};
  });
  rows.sort(function (a, b) {
    var order = isNaN(a.number) || isNaN(b.number) ? a.text.localeCompare(b.text) : a.number - b.number;
    return descending ? -order : order;
  });
  rows.forEach(function (entry) { body.appendChild(entry.row); });
}

document.querySelectorAll('table.sortable th').forEach(function (header) {
  header.tabIndex = 0;
  header.addEventListener('click', function () { sortTable(header); });
  header.addEventListener('keydown', function (event) {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      sortTable(header);
    }
  });
});

onRank(function (rank) {
  document.querySelectorAll('tr[data-rank]').forEach(function (row) {
    row.hidden = rank !== 'all' && Number(row.dataset.rank) !== rank;
  });
  document.querySelectorAll('.row[data-rank]').forEach(function (row) {
    row.classList.toggle('other', rank !== 'all' && Number(row.dataset.rank) !== rank);
  });
});

document.querySelectorAll('p.command code').forEach(function (code) {
  if (!navigator.clipboard) return;
  var button = document.createElement('button');
  button.type = 'button';
  button.className = 'copy';
  button.textContent = 'copy';
  button.setAttribute('aria-label', 'copy the command');
  button.addEventListener('click', function () {
    navigator.clipboard.writeText(code.textContent).then(function () {
      button.textContent = 'copied';
      setTimeout(function () { button.textContent = 'copy'; }, 1500);
    });
  });
  code.after(' ', button);
});
