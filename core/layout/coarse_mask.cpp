#include "core/layout/coarse_mask.h"

#include "core/error.h"

namespace ms::layout {

CoarseMask::CoarseMask(int64_t seq_length, int64_t cells) : seq_length_(seq_length), cells_(cells) {
  MS_CHECK(cells > 0 && seq_length % cells == 0, "a mask of ", seq_length, " positions in ", cells, " cells");
  seen_.resize(static_cast<size_t>(cells * cells));
}

CoarseMask::CoarseMask(int64_t seq_length, int64_t cells, std::span<const int64_t> document_ends)
    : CoarseMask(seq_length, cells) {
  const auto show_document = [&](int64_t begin, int64_t end) {  // positions of a sample
    const int64_t first = begin / positions(), last = (end - 1) / positions();
    for (int64_t query = first; query <= last; ++query)
      for (int64_t key = first; key <= query; ++key) show(query, key);
  };
  if (document_ends.empty()) show_document(0, seq_length);
  int64_t begin = 0;
  for (const int64_t end : document_ends) {
    const int64_t sample = begin / seq_length * seq_length;
    show_document(begin - sample, end - sample);
    begin = end;
  }
}

void CoarseMask::show_prefix(int64_t prefix) {
  for (int64_t query = 0; query < cells_; ++query)
    for (int64_t key = 0; key * positions() < prefix; ++key) show(query, key);
}

int64_t coarse_cells(int64_t seq_length, int64_t ranks) {
  MS_CHECK(seq_length % ranks == 0, "a sequence of ", seq_length, " for ", ranks, " ranks");
  int64_t of_rank = 1;
  for (int64_t parts = 1; parts * ranks <= kMaxCoarseCells; ++parts) {
    if (seq_length / ranks % parts == 0) of_rank = parts;
  }
  return ranks * of_rank;
}

}  // namespace ms::layout
