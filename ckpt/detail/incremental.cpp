#include "ckpt/detail/incremental.h"

#include <algorithm>
#include <map>

#include "ckpt/commit.h"
#include "core/error.h"

namespace ms::ckpt {
namespace {

bool same_box(const core::ShardedTensor& a, const core::ShardedTensor& b) {
  return a.key == b.key && a.role == b.role && a.dtype == b.dtype && a.global_shape == b.global_shape &&
         a.global_offset == b.global_offset && a.local_shape == b.local_shape;
}

}  // namespace

std::vector<int> Incremental::unchanged(const std::vector<core::ShardedTensor>& boxes,
                                        const std::vector<std::vector<uint64_t>>& chunk_xxh3) const {
  std::map<std::pair<std::string, core::TensorRole>, std::vector<int>> by_name;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const core::ShardedTensor& tensor = entries_[i].box.tensor;
    by_name[{tensor.key, tensor.role}].push_back(static_cast<int>(i));
  }
  std::vector<int> found(boxes.size(), -1);
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (const int entry : by_name[{boxes[i].key, boxes[i].role}]) {
      const BoxRecord& known = entries_[static_cast<size_t>(entry)].box;
      if (same_box(known.tensor, boxes[i]) && known.chunk_xxh3 == chunk_xxh3[i]) found[i] = entry;
    }
  }
  return found;
}

std::optional<std::vector<RankFileRecord>> Incremental::link(const std::vector<int>& entries,
                                                             const std::string& directory) const {
  std::map<size_t, RankFileRecord> records;
  for (const int index : entries) {
    if (index < 0) continue;
    const Entry& entry = entries_[static_cast<size_t>(index)];
    RankFileRecord& record = records[entry.file];
    record.boxes.push_back(entry.box);
    record.logical.push_back(entry.logical);
  }
  std::vector<RankFileRecord> result;
  for (auto& [file, record] : records) {
    const KeptFile& kept = files_[file];
    if (!kept.file->link_to(directory + "/" + kept.link_name)) return std::nullopt;
    record.name = kept.link_name;
    record.bytes = kept.bytes;
    record.xxh3 = kept.xxh3;
    record.linked = true;
    result.push_back(std::move(record));
  }
  return result;
}

void Incremental::remember(const std::string& path, int64_t iteration, const RankFileRecord* written,
                           const std::vector<RankFileRecord>& linked) {
  std::vector<KeptFile> files;
  std::vector<Entry> entries;
  const auto add = [&](const RankFileRecord& record, KeptFile file) {
    for (size_t i = 0; i < record.boxes.size(); ++i)
      entries.push_back({record.boxes[i], record.logical[i], files.size()});
    files.push_back(std::move(file));
  };
  for (const RankFileRecord& record : linked) {
    const auto kept =
        std::find_if(files_.begin(), files_.end(), [&](const KeptFile& file) { return file.link_name == record.name; });
    MS_CHECK(kept != files_.end(), record.name, " was linked but not known");
    add(record, *kept);
  }
  if (written != nullptr) {
    add(*written, {std::make_shared<core::File>(core::File::open_read(path)),
                   core::cat(generation_name(iteration, 0), ".", written->name), written->bytes, written->xxh3});
  }
  files_ = std::move(files);
  entries_ = std::move(entries);
  since_full_ = linked.empty() ? 0 : since_full_ + 1;
}

}  // namespace ms::ckpt
