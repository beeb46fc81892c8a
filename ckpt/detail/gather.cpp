#include "ckpt/detail/gather.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "ckpt/copy_box.h"
#include "ckpt/detail/assemble.h"
#include "ckpt/detail/slices.h"
#include "core/error.h"
#include "core/trace/span.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::trace::Category;
using core::trace::Span;

// A sender's offer: its boxes and their hashes.
RankFileRecord describe(const SaveJob& job) {
  RankFileRecord record;
  for (size_t i = 0; i < job.boxes.size(); ++i) {
    const core::ShardedTensor& tensor = job.boxes[i];
    BoxRecord& box = record.boxes.emplace_back();
    box.tensor = tensor;
    LogicalPartial& logical = record.logical.emplace_back();
    if (knows_hashes(job, i)) {
      box.chunk_xxh3 = job.hashes[i].chunk_xxh3;
      logical = job.hashes[i].logical;
      continue;
    }
    const int64_t item = core::size_of(tensor.dtype), elements = core::num_elements(tensor.local_shape);
    for (int64_t first = 0; first < elements; first += kChunkBytes / item) {
      const int64_t count = std::min(kChunkBytes / item, elements - first);
      box.chunk_xxh3.push_back(hash_chunk(tensor, first, count, job.data[i] + first * item, logical));
    }
  }
  return record;
}

std::vector<int64_t> sizes_of(const std::vector<size_t>& boxes,
                              const std::function<const core::ShardedTensor&(size_t)>& tensor) {
  std::vector<int64_t> sizes;
  for (const size_t i : boxes) sizes.push_back(bytes_of(tensor(i)));
  return sizes;
}

// Reassembles chunks of compressed boxes from slices: the file needs whole chunks.
class ChunkBuffer {
 public:
  explicit ChunkBuffer(core::Arena& arena) : arena_(arena) {}
  // Call in the order of the box; its bytes are in the file once the last ones have been added.
  void add(RankFile& file, int32_t box, int64_t total, int64_t begin, std::span<const std::byte> bytes,
           RankFile::Batch& batch) {
    if (chunk_ == nullptr)
      chunk_ = std::make_unique<core::Buffer>(arena_.allocate(kChunkBytes, core::MemoryTag::kCkpt));
    while (!bytes.empty()) {
      const int64_t at = begin % kChunkBytes, chunk = begin - at, size = std::min(kChunkBytes, total - chunk);
      const auto count = std::min(static_cast<int64_t>(bytes.size()), size - at);
      std::memcpy(chunk_->data() + at, bytes.data(), static_cast<size_t>(count));
      if (at + count == size) file.write_piece(box, chunk, {chunk_->data(), static_cast<size_t>(size)}, batch);
      bytes = bytes.subspan(static_cast<size_t>(count));
      begin += count;
    }
  }

 private:
  core::Arena& arena_;
  std::unique_ptr<core::Buffer> chunk_;
};

}  // namespace

// A sender's offer.
struct Gather::Part {
  int rank = 0;
  std::optional<Error> error;  // the sender has nothing to offer
  bool gone = false;           // the sender will not receive the answer
  bool answered = false;
  RankFileRecord record;
};

// A slice on its way through the writer.
struct Gather::Slot {
  std::shared_ptr<core::Buffer> memory;
  Slice slice;
  std::optional<Mailbox::Transfer> transfer;
  std::unique_ptr<RankFile::Batch> writing;
};

Gather::Gather(std::unique_ptr<core::Transport> transport, Options options)
    : mailbox_(std::move(transport), options.give_up), options_(std::move(options)) {}

Gather::~Gather() = default;

std::vector<Gather::Part> Gather::offers() {
  std::vector<Part> parts;
  for (size_t i = 1; i < options_.members.size(); ++i) {
    Part& part = parts.emplace_back();
    part.rank = options_.members[i];
    const Outcome heard = outcome_of([&] { return mailbox_.receive_text(part.rank, options_.timeout_s); });
    part.gone = heard.failed();
    part.error = heard.error;
    if (part.gone) continue;
    const Outcome read = outcome_of([&] {
      const Outcome offer = Outcome::decode(heard.content);
      if (offer.failed()) throw *offer.error;
      part.record = std::move(decode_records(offer.content).at(0));
    });
    part.error = read.error;
  }
  return parts;
}

Outcome Gather::write(const SaveJob& own, const std::optional<Error>& failed, Incremental& incremental) {
  mailbox_.next_round();
  std::vector<Part> parts = offers();
  Outcome outcome{{}, failed};
  SaveJob all = own;
  for (Part& part : parts) {
    if (!outcome.failed() && part.error) outcome.error = part.error->within(cat("gather from rank ", part.rank));
    for (const BoxRecord& box : part.record.boxes) {
      all.boxes.push_back(box.tensor);
      all.data.push_back(nullptr);
    }
  }
  if (!outcome.failed()) {
    const auto hashes = [&] {
      std::vector<std::vector<uint64_t>> known;
      for (size_t i = 0; i < own.boxes.size(); ++i) known.push_back(hashes_of(own, i));
      for (const Part& part : parts) {
        for (const BoxRecord& box : part.record.boxes) known.push_back(box.chunk_xxh3);
      }
      return known;
    };
    outcome = write_part(all, incremental, PartSource{hashes, [&](const std::vector<size_t>& wanted) {
                                                        return write_file(all, parts, wanted);
                                                      }});
  }
  // Tell senders from which nothing is needed, or nothing any more.
  for (Part& part : parts) {
    if (part.answered || part.gone || part.error) continue;
    const Outcome told = outcome_of([&] { mailbox_.send_text(part.rank, "", options_.timeout_s); });
    if (told.failed() && !outcome.failed()) outcome = told;
  }
  return outcome;
}

RankFileRecord Gather::write_file(const SaveJob& all, std::vector<Part>& parts, const std::vector<size_t>& wanted) {
  std::vector<core::ShardedTensor> boxes;
  int64_t total = 0;
  for (const size_t i : wanted) {
    boxes.push_back(all.boxes[i]);
    total += bytes_of(all.boxes[i]);
  }
  require_room(all, total);
  Span span(options_.recorder, Category::kUserAnnotation, "ckpt.write", -1, total);
  RankFile file(all.temporary.string(), all.rank, std::move(boxes), file_options(all));
  size_t next = 0;  // index into wanted, which is the order in the file
  size_t offered = all.boxes.size();
  for (const Part& part : parts) offered -= part.record.boxes.size();
  std::vector<const std::byte*> own;
  for (; next < wanted.size() && wanted[next] < offered; ++next) own.push_back(all.data[wanted[next]]);
  tell_hashes(all, {wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(own.size())}, file);
  file.write_all(own, all.compress_threads);
  for (Part& part : parts) {
    const size_t begin = offered;
    offered += part.record.boxes.size();
    const auto first_in_file = static_cast<int32_t>(next);
    std::vector<size_t> chosen;
    std::string answer(part.record.boxes.size(), '0');
    for (; next < wanted.size() && wanted[next] < offered; ++next) {
      const size_t box = wanted[next] - begin;
      file.set_hashes(static_cast<int32_t>(next), part.record.boxes[box].chunk_xxh3, part.record.logical[box]);
      answer[box] = '1';
      chosen.push_back(box);
    }
    if (chosen.empty()) continue;
    part.answered = true;
    try {
      mailbox_.send_text(part.rank, answer, options_.timeout_s);
      receive_boxes(part, chosen, first_in_file, file);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kPeerFailed) throw;
      throw e.within(cat("gather from rank ", part.rank));
    }
  }
  return file.finish(options_.recorder);
}

void Gather::receive_boxes(const Part& part, const std::vector<size_t>& boxes, int32_t first_in_file, RankFile& file) {
  Slices slices(sizes_of(boxes, [&](size_t i) -> const core::ShardedTensor& { return part.record.boxes[i].tensor; }),
                options_.slice_bytes);
  std::vector<Slot> slots(options_.members.size() + 1);
  ChunkBuffer chunks(*options_.arena);
  std::exception_ptr failure;  // of the disk: receive the rest all the same, so that the sender does not wait
  const auto unless_failed = [&](const std::function<void()>& body) {
    if (failure) return;
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  size_t posted = 0;
  bool all_posted = false;
  for (size_t done = 0; !all_posted || done < posted; ++done) {
    while (!all_posted && posted < done + window()) {
      Slot& slot = slots[posted % slots.size()];
      slot.slice = slices.next();
      all_posted = slot.slice.empty();
      if (all_posted) break;
      if (slot.memory == nullptr) {
        slot.memory =
            std::make_shared<core::Buffer>(options_.arena->allocate(slices.largest(), core::MemoryTag::kCkpt));
        slot.writing = std::make_unique<RankFile::Batch>(file.bulk());
      }
      unless_failed([&] { file.bulk().wait(*slot.writing); });
      slot.transfer.reset();
      slot.transfer.emplace(mailbox_.post_receive(part.rank, slot.memory->data(), bytes_of(slot.slice), slot.memory));
      ++posted;
    }
    if (done == posted) break;
    Slot& slot = slots[done % slots.size()];
    slot.transfer->wait(options_.timeout_s);
    unless_failed([&] {
      for (const SlicePiece& piece : slot.slice) {
        const std::span<const std::byte> bytes(slot.memory->data() + piece.at, static_cast<size_t>(piece.size));
        const auto box = first_in_file + static_cast<int32_t>(piece.box);
        if (file.compressed(box)) {
          chunks.add(file, box, bytes_of(part.record.boxes[boxes[piece.box]].tensor), piece.begin, bytes,
                     *slot.writing);
        } else {
          file.write_piece(box, piece.begin, bytes, *slot.writing);
        }
      }
    });
  }
  for (Slot& slot : slots) {
    unless_failed([&] {
      if (slot.writing != nullptr) file.bulk().wait(*slot.writing);
    });
  }
  if (failure) std::rethrow_exception(failure);
}

Outcome Gather::send(const SaveJob& own, const std::optional<Error>& failed) {
  mailbox_.next_round();
  return outcome_of([&] {
    Span span(options_.recorder, Category::kUserAnnotation, "ckpt.gather");
    const int writer = options_.members[0];
    try {
      const Outcome offer = failed ? Outcome{{}, failed} : outcome_of([&] { return encode_records({describe(own)}); });
      mailbox_.send_text(writer, offer.encode(), patience_s());
      if (offer.failed()) return;
      const std::string wanted = mailbox_.receive_text(writer, patience_s());
      std::vector<size_t> boxes;
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i] == '1') boxes.push_back(i);
      }
      send_boxes(own, boxes);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kPeerFailed) throw;
      throw e.within(cat("gather to rank ", writer));
    }
  });
}

void Gather::send_boxes(const SaveJob& own, const std::vector<size_t>& boxes) {
  Slices slices(sizes_of(boxes, [&](size_t i) -> const core::ShardedTensor& { return own.boxes[i]; }),
                options_.slice_bytes);
  std::vector<std::optional<Mailbox::Transfer>> under_way(window());
  const auto wait = [&](std::optional<Mailbox::Transfer>& transfer) {
    if (!transfer) return;
    transfer->wait(patience_s());
    transfer.reset();
  };
  size_t sent = 0;
  for (Slice slice = slices.next(); !slice.empty(); slice = slices.next()) {
    std::optional<Mailbox::Transfer>& transfer = under_way[sent++ % under_way.size()];
    wait(transfer);
    const auto place = [&](const SlicePiece& piece) { return own.data[boxes[piece.box]] + piece.begin; };
    if (slice.size() == 1) {
      transfer.emplace(mailbox_.post_send(options_.members[0], place(slice[0]), slice[0].size, nullptr));
      continue;
    }
    const auto packed =
        std::make_shared<core::Buffer>(options_.arena->allocate(bytes_of(slice), core::MemoryTag::kCkpt));
    for (const SlicePiece& piece : slice) {
      std::memcpy(packed->data() + piece.at, place(piece), static_cast<size_t>(piece.size));
    }
    transfer.emplace(mailbox_.post_send(options_.members[0], packed->data(), bytes_of(slice), packed));
  }
  for (size_t i = 0; i < under_way.size(); ++i) wait(under_way[(sent + i) % under_way.size()]);
}

}  // namespace ms::ckpt
