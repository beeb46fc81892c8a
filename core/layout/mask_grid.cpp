#include "core/layout/mask_grid.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/checksum.h"

namespace ms::layout {
namespace {

// Adds keys behind those of a list.
void add_keys(std::vector<kernels::KeyRun>& runs, size_t begin, int64_t row, int64_t position, int64_t count) {
  if (runs.size() > begin) {
    kernels::KeyRun& last = runs.back();
    if (last.first + last.count == row && last.position + last.count == position) {
      last.count += static_cast<int32_t>(count);
      return;
    }
  }
  runs.push_back({static_cast<int32_t>(row), static_cast<int32_t>(count), static_cast<int32_t>(position)});
}

// Whether two lists have the same keys up to a position, and the first one no others.
bool are_same_up_to(std::span<const kernels::KeyRun> first, std::span<const kernels::KeyRun> second, int64_t position) {
  size_t at = 0;
  for (const kernels::KeyRun& run : second) {
    const int64_t count = std::min<int64_t>(run.count, position + 1 - run.position);
    if (count <= 0) continue;
    if (at == first.size()) return false;
    const kernels::KeyRun& other = first[at++];
    if (other.first != run.first || other.position != run.position || other.count != count) return false;
  }
  return at == first.size();
}

}  // namespace

MaskGrid::MaskGrid(CoarseMask visible, bool is_causal) : visible_(std::move(visible)), is_causal_(is_causal) {
  MS_CHECK(seq_length() <= INT32_MAX, "a grid of ", seq_length(), " positions");
  const int64_t of_cell = visible_.positions();
  ends_.push_back(0);
  for (int64_t query = 0; query < cells(); ++query) {
    for (int64_t key = 0; key < (is_causal ? query + 1 : cells()); ++key) {
      if (!visible_.sees(query, key)) continue;
      const bool follows = keys_.size() > ends_.back() && keys_.back().first + keys_.back().count == key * of_cell;
      if (!follows) keys_.push_back({key * of_cell, 0});
      keys_.back().count += of_cell;
    }
    ends_.push_back(keys_.size());
  }
  whole_ = grid_runs(*this, {}, {0, seq_length()}, {}, seq_length());
}

std::optional<int64_t> MaskGrid::blind_query() const {
  for (int64_t cell = 0; cell < cells(); ++cell)
    if (keys_of(cell).empty()) return cell * visible_.positions();
  return std::nullopt;
}

int64_t MaskGrid::visible_scores(int64_t first, int64_t count) const {
  const int64_t of_cell = visible_.positions(), end = first + count;
  int64_t scores = 0;
  for (int64_t cell = first / of_cell; cell * of_cell < end; ++cell) {
    const int64_t front = cell * of_cell;
    const int64_t begin = std::max(first, front), behind = std::min(end, front + of_cell);
    for (const Segment& keys : keys_of(cell)) {
      const bool has_own = is_causal_ && keys.first + keys.count > front;
      scores += 2 * (behind - begin) * (has_own ? front - keys.first : keys.count);
      if (has_own) scores += (behind - front) * (behind - front) - (begin - front) * (begin - front);
    }
  }
  return scores;
}

int64_t MaskGrid::visible_pairs() const {
  const int64_t of_cell = visible_.positions();
  int64_t pairs = 0;
  for (int64_t query = 0; query < cells(); ++query) {
    for (const Segment& keys : keys_of(query)) {
      const bool has_own = is_causal_ && keys.first + keys.count > query * of_cell;
      pairs += of_cell * keys.count - (has_own ? of_cell * (of_cell - 1) / 2 : 0);
    }
  }
  return pairs;
}

int64_t MaskGrid::positions_with_loss() const {
  if (is_causal_) return seq_length();
  int64_t seen = 0;  // where they are predicted
  for (int64_t cell = 0; cell < cells(); ++cell) {
    if (visible_.sees(cell, cell)) seen += visible_.positions() - 1;
    if (cell + 1 < cells() && visible_.sees(cell, cell + 1)) ++seen;
  }
  return seq_length() - seen;
}

CoarseMask MaskGrid::coarse(int64_t cells) const {
  CoarseMask mask(seq_length(), cells);
  const int64_t of_cell = visible_.positions(), wanted = mask.positions();
  for (int64_t query = 0; query < cells; ++query) {
    for (int64_t first = query * wanted; first < (query + 1) * wanted;) {
      const int64_t end = std::min((first / of_cell + 1) * of_cell, (query + 1) * wanted);
      for (const Segment& keys : keys_of(first / of_cell)) {
        const int64_t behind = is_causal_ ? std::min(keys.first + keys.count, end) : keys.first + keys.count;
        for (int64_t key = keys.first / wanted; key * wanted < behind; ++key) mask.show(query, key);
      }
      first = end;
    }
  }
  return mask;
}

uint64_t MaskGrid::fingerprint() const {
  std::vector<uint8_t> bytes = {is_causal_ ? uint8_t{1} : uint8_t{0}};
  for (int64_t query = 0; query < cells(); ++query)
    for (int64_t key = 0; key < cells(); ++key) bytes.push_back(visible_.sees(query, key) ? 1 : 0);
  return kernels::xxh3(bytes.data(), bytes.size());
}

RunLists grid_runs(const MaskGrid& grid, const SequenceShare& queries, Segment rows, const SequenceShare& keys,
                   int64_t num_keys) {
  std::vector<kernels::KeyRun> all;
  keys.for_each_run(0, num_keys,
                    [&](int64_t row, int64_t position, int64_t count) { add_keys(all, 0, row, position, count); });
  RunLists lists{.is_causal = grid.is_causal()};
  const int64_t of_cell = grid.seq_length() / grid.cells();
  size_t begin = 0, behind = 0;  // of the runs of the last span
  const auto add = [&](int64_t row, int64_t position, int64_t count) {
    const int64_t last = position + count - 1;
    auto run = all.begin();
    for (const Segment& seen : grid.keys_of(position / of_cell)) {
      const int64_t end = grid.is_causal() ? std::min(seen.first + seen.count, last + 1) : seen.first + seen.count;
      while (run != all.end() && run->position + run->count <= seen.first) ++run;
      for (auto next = run; next != all.end() && next->position < end; ++next) {
        const int64_t first = std::max<int64_t>(seen.first, next->position);
        add_keys(lists.runs, behind, next->first + first - next->position, first,
                 std::min<int64_t>(end, next->position + next->count) - first);
      }
    }
    if (!lists.spans.empty()) {
      kernels::QuerySpan& before = lists.spans.back();
      const auto of_before = std::span(lists.runs).subspan(begin, behind - begin);
      const auto own = std::span(lists.runs).subspan(behind);
      const int64_t up_to = grid.is_causal() ? before.position + before.count - 1 : grid.seq_length();
      if (before.first + before.count == row && before.position + before.count == position &&
          are_same_up_to(of_before, own, up_to)) {
        before.count += static_cast<int32_t>(count);
        lists.runs.erase(lists.runs.begin() + static_cast<std::ptrdiff_t>(begin),
                         lists.runs.begin() + static_cast<std::ptrdiff_t>(behind));
        before.runs_end = static_cast<int32_t>(lists.runs.size());
        behind = lists.runs.size();
        return;
      }
    }
    lists.spans.push_back({static_cast<int32_t>(row), static_cast<int32_t>(count), static_cast<int32_t>(position),
                           static_cast<int32_t>(lists.runs.size())});
    begin = behind;
    behind = lists.runs.size();
  };
  queries.for_each_run(rows.first, rows.first + rows.count, [&](int64_t row, int64_t position, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t next = std::min(count - done, of_cell - (position + done) % of_cell);
      add(row - rows.first + done, position + done, next);
      done += next;
    }
  });
  return lists;
}

}  // namespace ms::layout
