#include "ckpt/detail/copy_generation.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/commit.h"
#include "ckpt/copy_box.h"
#include "ckpt/detail/outcome.h"
#include "ckpt/detail/slices.h"
#include "ckpt/verify.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;
namespace fs = std::filesystem;

// Remembers the first failure of a sequence of steps. Later steps still run, so that the peer does not wait for them.
class FirstFailure {
 public:
  void unless_failed(const std::function<void()>& body) {
    if (failure_) return;
    try {
      body();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

struct Stream {
  std::vector<std::string> names;
  std::vector<int64_t> bytes;
  int64_t total = 0;
  void add(std::string name, int64_t size) {
    names.push_back(std::move(name));
    bytes.push_back(size);
    total += size;
  }
};

// The slices of a stream of files; one buffer for all of them.
class Side {
 public:
  Side(const Stream& stream, const CopyOptions& options)
      : slices_(stream.bytes, options.slice_bytes),
        memory_(std::make_shared<core::Buffer>(options.arena->allocate(slices_.largest(), core::MemoryTag::kCkpt))) {}
  bool next() {
    slice = slices_.next();
    return !slice.empty();
  }
  std::byte* data() const { return memory_->data(); }
  const std::shared_ptr<core::Buffer>& memory() const { return memory_; }
  // Calls `use` with file index, offset in the file and bytes of each piece.
  void for_each_piece(const std::function<void(size_t, int64_t, std::span<std::byte>)>& use) const {
    for (const SlicePiece& piece : slice) {
      use(piece.box, piece.begin, {memory_->data() + piece.at, static_cast<size_t>(piece.size)});
    }
  }
  Slice slice;

 private:
  Slices slices_;
  std::shared_ptr<core::Buffer> memory_;
};

Stream files_of(const fs::path& directory) {
  Stream stream;
  const Manifest manifest = check_generation(directory);
  stream.add(kManifestName, static_cast<int64_t>(fs::file_size(directory / kManifestName)));
  for (const ManifestFile& file : manifest.files) stream.add(file.name, file.bytes);
  return stream;
}

std::string describe(const LocalPart& part, const Stream& stream) {
  return json{{"iteration", part.iteration}, {"save", part.save}, {"names", stream.names}, {"bytes", stream.bytes}}
      .dump();
}

// The generation of root that contains this save, if it is complete.
std::optional<LocalPart> find_save(const fs::path& root, int64_t iteration, const std::string& save) {
  for (const Generation& generation : list_generations(root)) {
    if (generation.iteration != iteration) continue;
    try {
      auto part = local_part(check_generation(generation.path), generation.path);
      if (part && part->save == save) return part;
    } catch (const Error&) {
      continue;  // damaged: received again
    }
  }
  return std::nullopt;
}

// Files being received, until they are committed as a generation.
class Arrival {
 public:
  Arrival(const fs::path& root, int64_t iteration, const Stream& stream)
      : root_(root), directory_(root / cat(generation_name(iteration, 0), core::temporary_suffix())) {
    for (size_t i = 0; i < stream.names.size(); ++i) {
      const std::string& name = stream.names[i];
      MS_CHECK(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos && stream.bytes[i] >= 0, name);
      files_.push_back(core::File::create((directory_.path() / name).string()));
      files_.back().preallocate(stream.bytes[i]);
    }
  }
  void write(size_t file, int64_t offset, std::span<const std::byte> bytes) { files_[file].pwrite(bytes, offset); }
  LocalPart commit() {
    for (core::File& file : files_) {
      file.fsync();
      file.close();
    }
    const VerifyReport report = verify_generation(directory_.path(), {});
    if (!report.findings.empty()) {
      throw Error(ErrorCode::kCorruptData,
                  cat("the received generation is damaged: ", finding_text(report.findings.front())));
    }
    const Manifest manifest = read_manifest(directory_.path());
    const fs::path path = commit_generation(root_, directory_, manifest);
    return local_part(manifest, path).value();
  }

 private:
  fs::path root_;
  core::AtomicDirectory directory_;
  std::vector<core::File> files_;
};

}  // namespace

CopyResult copy_generations(Mailbox& mailbox, const CopyOptions& options, const std::optional<OutgoingCopy>& outgoing,
                            const std::optional<IncomingCopy>& incoming) {
  CopyResult result;
  FirstFailure reading, writing;
  Stream goes, comes;
  std::vector<Mailbox::Transfer> told;
  if (outgoing) {
    Outcome offer{{}, Error(ErrorCode::kNotFound, "there is nothing to copy")};
    reading.unless_failed([&] {
      if (!outgoing->part) return;
      goes = files_of(outgoing->part->path);
      offer = {describe(*outgoing->part, goes), {}};
    });
    told = mailbox.post_text(outgoing->peer, offer.encode());
  }
  std::unique_ptr<Arrival> arrival;
  bool wanted = false, wanted_of_us = false;
  if (incoming) {
    const Outcome offer = Outcome::decode(mailbox.receive_text(incoming->peer, options.timeout_s));
    if (!offer.failed()) {
      const json said = json::parse(offer.content);
      const auto names = said.at("names").get<std::vector<std::string>>();
      for (size_t i = 0; i < names.size(); ++i) comes.add(names[i], said.at("bytes").at(i));
      writing.unless_failed([&] {
        result.received = find_save(incoming->root, said.at("iteration"), said.at("save"));
        if (result.received) return;
        arrival = std::make_unique<Arrival>(incoming->root, said.at("iteration"), comes);
      });
      wanted = arrival != nullptr;
    }
    for (Mailbox::Transfer& answer : mailbox.post_text(incoming->peer, wanted ? "1" : "0")) {
      told.push_back(std::move(answer));
    }
  }
  // In a ring, all ranks must receive before any waits for its sends.
  if (outgoing) wanted_of_us = mailbox.receive_text(outgoing->peer, options.timeout_s) == "1";
  for (Mailbox::Transfer& transfer : told) transfer.wait(options.timeout_s);
  std::optional<Side> out, in;
  if (wanted_of_us) out.emplace(goes, options);
  if (wanted) in.emplace(comes, options);
  std::vector<core::File> files;
  reading.unless_failed([&] {
    for (size_t i = 0; out && i < goes.names.size(); ++i) {
      files.push_back(core::File::open_read((outgoing->part->path / goes.names[i]).string()));
    }
  });
  while (true) {
    const bool sends = out && out->next(), receives = in && in->next();
    if (!sends && !receives) break;
    std::vector<Mailbox::Transfer> under_way;
    if (receives) {
      under_way.push_back(mailbox.post_receive(incoming->peer, in->data(), bytes_of(in->slice), in->memory()));
    }
    if (sends) {
      reading.unless_failed([&] {
        out->for_each_piece(
            [&](size_t file, int64_t offset, std::span<std::byte> bytes) { files[file].pread(bytes, offset); });
      });
      under_way.push_back(mailbox.post_send(outgoing->peer, out->data(), bytes_of(out->slice), out->memory()));
    }
    for (Mailbox::Transfer& transfer : under_way) transfer.wait(options.timeout_s);
    if (!receives) continue;
    writing.unless_failed([&] {
      in->for_each_piece(
          [&](size_t file, int64_t offset, std::span<std::byte> bytes) { arrival->write(file, offset, bytes); });
    });
  }
  if (wanted) {
    writing.unless_failed([&] { result.received = arrival->commit(); });
    result.received_bytes = comes.total;
  }
  if (wanted_of_us) result.sent_bytes = goes.total;
  reading.rethrow();
  writing.rethrow();
  return result;
}

}  // namespace ms::ckpt
