// ckpt/plan.h: shards of small tensors with arbitrary errors. A plan that is made fills every element of every target
// exactly once, with the source element at the same global position.
//
// Input: a byte for the number of axes (0 to 3), a byte per axis for the global shape, then shards: one bit for the
// side, and a byte per axis for offset and extent each.
#include <vector>

#include "ckpt/plan.h"
#include "tests/fuzz/reader.h"

namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  int64_t next() { return empty() ? 0 : data_[at_++]; }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

// Row-major index of a position within a shape.
int64_t flat(const ms::core::Dims& shape, const ms::core::Dims& place) {
  int64_t index = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) index = index * shape[axis] + place[axis];
  return index;
}

// Calls visit for every position in a box.
template <class Visit>
void for_each_place(const ms::core::Dims& extent, const Visit& visit) {
  ms::core::Dims place(extent.size(), 0);
  const int64_t count = ms::core::num_elements(extent);
  for (int64_t i = 0; i < count; ++i) {
    visit(place);
    for (size_t axis = place.size(); axis-- > 0 && ++place[axis] == extent[axis];) place[axis] = 0;
  }
}

ms::core::Dims sum(const ms::core::Dims& a, const ms::core::Dims& b) {
  ms::core::Dims c = a;
  for (size_t axis = 0; axis < c.size(); ++axis) c[axis] += b[axis];
  return c;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  Bytes in(data, std::min<size_t>(size, 512));
  const auto axes = static_cast<size_t>(in.next() % 4);
  core::Dims shape;
  for (size_t axis = 0; axis < axes; ++axis) shape.push_back(in.next() % 12);
  std::vector<core::ShardedTensor> sides[2];
  while (!in.empty()) {
    const int64_t head = in.next();
    core::ShardedTensor shard;
    shard.key = "x";
    shard.global_shape = shape;
    shard.replica_id = static_cast<int>(head >> 1 & 1);
    for (size_t axis = 0; axis < axes; ++axis) {
      shard.global_offset.push_back(in.next() % 13);
      shard.local_shape.push_back(in.next() % 13);
    }
    bool inside = true;  // a target outside its tensor is the caller's bug
    for (size_t axis = 0; axis < axes; ++axis) {
      inside = inside && shard.global_offset[axis] + shard.local_shape[axis] <= shape[axis];
    }
    if (inside || head % 2 == 0) sides[head % 2].push_back(std::move(shard));
  }
  const auto& sources = sides[0];
  const auto& targets = sides[1];
  std::vector<std::vector<int64_t>> filled;  // global index that each target element received; -1: none yet
  for (const auto& target : targets) filled.emplace_back(core::num_elements(target.local_shape), -1);
  fuzz::read_or_refuse([&] {
    ckpt::plan_copies(sources, targets, [&](const ckpt::CopyRegion& copy) {
      const auto& source = sources.at(static_cast<size_t>(copy.source_shard));
      const auto& target = targets.at(static_cast<size_t>(copy.target_shard));
      fuzz::require(source.replica_id == 0, "replicas are not read");
      for_each_place(copy.extent, [&](const core::Dims& place) {
        const core::Dims from = sum(copy.source_offset, place), to = sum(copy.target_offset, place);
        for (size_t axis = 0; axis < axes; ++axis) {
          fuzz::require(from[axis] < source.local_shape[axis], "copies stay inside the source");
          fuzz::require(to[axis] < target.local_shape[axis], "copies stay inside the target");
        }
        const int64_t global = flat(shape, sum(source.global_offset, from));
        fuzz::require(global == flat(shape, sum(target.global_offset, to)), "an element keeps its place");
        int64_t& element =
            filled[static_cast<size_t>(copy.target_shard)][static_cast<size_t>(flat(target.local_shape, to))];
        fuzz::require(element == -1, "no element is filled twice");
        element = global;
      });
    });
    for (const auto& elements : filled) {
      for (const int64_t element : elements) fuzz::require(element >= 0, "every element is filled");
    }
  });
  return 0;
}
