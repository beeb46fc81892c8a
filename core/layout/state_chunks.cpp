#include "core/layout/state_chunks.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/scratch_file.h"

namespace ms::layout {
namespace {

constexpr int64_t kFp32Bytes = sizeof(float);
constexpr int64_t kElemsOfBlock = core::ScratchFile::kBlockBytes / kFp32Bytes;

int64_t parts_of(int64_t elements, int64_t part) { return (elements + part - 1) / part; }

}  // namespace

StateChunks::StateChunks(int64_t elements, int64_t times) : elements_(elements) {
  MS_CHECK(elements >= 0 && times > 0, elements, " elements in ", times, " chunks");
  chunk_elems_ = parts_of(std::max<int64_t>(1, parts_of(elements, times)), kElemsOfBlock) * kElemsOfBlock;
  count_ = parts_of(elements, chunk_elems_);
}

FlatRange StateChunks::operator[](int64_t chunk) const {
  return {chunk * chunk_elems_, std::min(elements_, (chunk + 1) * chunk_elems_)};
}

int64_t StateChunks::elements_in_memory() const { return std::min(kAtOnce * chunk_elems_, elements_); }

SwappedBytes StateChunks::moved(int64_t num_states) const {
  const int64_t bytes = elements_ * kFp32Bytes;  // all chunks but the last are whole blocks
  return {num_states * bytes, num_states * core::ScratchFile::blocks_bytes(bytes), num_states * count_};
}

}  // namespace ms::layout
