#include "ckpt/detail/save_job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "ckpt/commit.h"
#include "ckpt/copy_box.h"
#include "ckpt/detail/assemble.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/log.h"
#include "core/trace/span.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::trace::Category;
using core::trace::Span;
using Clock = std::chrono::steady_clock;

std::string report_path(const SaveJob& job, int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%05d.report", rank);
  return (job.temporary / name).string();
}

RankFileRecord write_boxes(const SaveJob& job, const std::vector<size_t>& wanted, core::trace::Recorder* recorder) {
  std::vector<core::ShardedTensor> boxes;
  std::vector<const std::byte*> data;
  int64_t total = 0;
  for (const size_t i : wanted) {
    boxes.push_back(job.boxes[i]);
    data.push_back(job.data[i]);
    total += bytes_of(job.boxes[i]);
  }
  require_room(job, total);
  Span span(recorder, Category::kUserAnnotation, "ckpt.write", -1, total);
  RankFile file(job.temporary.string(), job.rank, std::move(boxes), file_options(job));
  tell_hashes(job, wanted, file);
  file.write_all(data, job.compress_threads);
  return file.finish(recorder);
}

constexpr int64_t kMaxReportBytes = int64_t{1} << 30;

// The reports of job.writers in order; polls with increasing intervals.
std::vector<Outcome> collect_reports(const SaveJob& job, const Outcome& own, const GiveUp& give_up) {
  std::vector<std::optional<Outcome>> reports(job.writers.size());
  reports[0] = own;
  size_t missing = reports.size() - 1;
  const double patience_s = job.timeout_s * (1 + job.gathered);  // a writer names its silent rank first
  auto heard = Clock::now();
  auto pause = std::chrono::milliseconds(1);
  while (missing > 0) {
    const size_t before = missing;
    for (size_t i = 0; i < reports.size(); ++i) {
      const std::string path = report_path(job, job.writers[i]);
      if (reports[i] || ::access(path.c_str(), F_OK) != 0) continue;
      try {
        reports[i] = Outcome::decode(core::read_text(path, kMaxReportBytes));
      } catch (const Error& e) {
        throw e.within(path);
      }
      --missing;
    }
    if (missing == 0) break;
    if (const auto reason = give_up()) throw *reason;
    if (missing != before) {
      heard = Clock::now();
      pause = std::chrono::milliseconds(1);
    }
    if (std::chrono::duration<double>(Clock::now() - heard).count() > patience_s) {
      const auto silent = std::find(reports.begin(), reports.end(), std::nullopt) - reports.begin();
      throw Error(
          ErrorCode::kPeerFailed,
          cat("rank ", job.writers[static_cast<size_t>(silent)],
              missing > 1 ? cat(" and ", missing - 1, " more have") : " has", " not reported within ", patience_s,
              " s (--ckpt-timeout). Is its disk stuck, or the directory not shared between all ranks?"));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < reports.size(); ++i) {
    ::unlink(report_path(job, job.writers[i]).c_str());
    outcomes.push_back(std::move(*reports[i]));
  }
  return outcomes;
}

std::filesystem::path commit(const SaveJob& job, const std::vector<Outcome>& reports,
                             core::AtomicDirectory& directory) {
  int failed = 0;
  std::optional<Error> error;
  std::vector<RankFileRecord> records;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i].failed()) {
      if (!error) error = reports[i].error->within(cat("rank ", job.writers[i]));
      ++failed;
    } else if (!error) {
      for (RankFileRecord& record : decode_records(reports[i].content)) records.push_back(std::move(record));
    }
  }
  if (error && failed > 1) throw Error(error->code(), cat(error->what(), " (and ", failed - 1, " more ranks)"));
  if (error) throw *error;
  Manifest manifest;
  manifest.producer = job.producer;
  manifest.info = job.info;
  assemble_tensors(manifest, records, job.temporary);
  return commit_generation(job.root, directory, std::move(manifest));
}

// True while generations are being removed, by this job's coordinator or by another process.
bool something_goes(const std::filesystem::path& root) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().rfind(kTrashPrefix, 0) == 0) return true;
  }
  return false;
}

}  // namespace

bool knows_hashes(const SaveJob& job, size_t i) { return i < job.hashes.size() && !job.hashes[i].chunk_xxh3.empty(); }

void tell_hashes(const SaveJob& job, const std::vector<size_t>& wanted, RankFile& file) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!knows_hashes(job, wanted[i])) continue;
    const ShardHashes& known = job.hashes[wanted[i]];
    file.set_hashes(static_cast<int32_t>(i), known.chunk_xxh3, known.logical);
  }
}

std::vector<uint64_t> hashes_of(const SaveJob& job, size_t i) {
  if (knows_hashes(job, i)) return job.hashes[i].chunk_xxh3;
  std::vector<uint64_t> hashes;
  const int64_t size = bytes_of(job.boxes[i]);
  for (int64_t begin = 0; begin < size; begin += kChunkBytes) {
    hashes.push_back(kernels::xxh3(job.data[i] + begin, static_cast<size_t>(std::min(kChunkBytes, size - begin))));
  }
  return hashes;
}

RankFile::Options file_options(const SaveJob& job) {
  RankFile::Options options = job.file;
  if (job.full_every > 0) options.cut_cells_bytes = INT64_MAX;  // later saves link the boxes and need their pieces
  return options;
}

void require_room(const SaveJob& job, int64_t bytes) {
  // Removals that are running will free space; the other ranks need space too.
  const auto give_up_at = Clock::now() + std::chrono::duration<double>(job.timeout_s);
  const auto writers = static_cast<int64_t>(job.writers.size());
  while (core::available_bytes(job.temporary.string()) / writers < bytes && something_goes(job.root) &&
         Clock::now() < give_up_at) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (const int64_t room = core::available_bytes(job.temporary.string()); room < bytes) {
    throw Error(ErrorCode::kIo, cat("this rank's part of the checkpoint takes ", bytes, " bytes, but only ", room,
                                    " are free in ", job.root.string()));
  }
}

Outcome write_part(const SaveJob& job, Incremental& incremental, const PartSource& source) {
  return outcome_of([&] {
    core::make_directory(job.temporary);
    if (job.boxes.empty()) return encode_records({});
    if (job.full_every <= 0 || incremental.since_full() + 1 >= job.full_every) incremental.forget();
    std::vector<int> entries(job.boxes.size(), -1);
    if (!incremental.knows_nothing()) entries = incremental.unchanged(job.boxes, source.hashes());
    auto linked = incremental.link(entries, job.temporary.string());
    if (!linked) {
      core::log_info("ckpt.incremental", "files of the previous save cannot be linked here: writing all boxes");
      std::fill(entries.begin(), entries.end(), -1);
      linked.emplace();
    }
    std::vector<size_t> wanted;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i] < 0) wanted.push_back(i);
    }
    std::vector<RankFileRecord> records = *linked;
    if (!wanted.empty()) records.push_back(source.write(wanted));
    if (job.full_every > 0) {
      incremental.remember((job.temporary / rank_file_name(job.rank)).string(), job.info.iteration,
                           wanted.empty() ? nullptr : &records.back(), *linked);
    }
    return encode_records(records);
  });
}

Outcome write_part(const SaveJob& job, Incremental& incremental, core::trace::Recorder* recorder) {
  const auto hashes = [&] {
    std::vector<std::vector<uint64_t>> all;
    for (size_t i = 0; i < job.boxes.size(); ++i) all.push_back(hashes_of(job, i));
    return all;
  };
  const auto write = [&](const std::vector<size_t>& wanted) { return write_boxes(job, wanted, recorder); };
  return write_part(job, incremental, PartSource{hashes, write});
}

bool all_have_begun(const SaveJob& job) {
  for (const int rank : job.writers) {
    if (::access((job.temporary / rank_file_name(rank)).c_str(), F_OK) != 0 &&
        ::access(report_path(job, rank).c_str(), F_OK) != 0) {
      return false;
    }
  }
  return true;
}

void leave_report(const SaveJob& job, const Outcome& outcome) {
  // No fsync: nothing reads the report of a save that a crash of the machine ended.
  const std::string path = report_path(job, job.rank), temporary = path + ".tmp", text = outcome.encode();
  core::File file = core::File::create(temporary);
  file.pwrite(std::as_bytes(std::span(text)), 0);
  file.close();
  core::rename_file(temporary, path);
}

Outcome commit_reported(const SaveJob& job, const Outcome& own, const GiveUp& give_up,
                        core::trace::Recorder* recorder) {
  Outcome outcome = outcome_of([&] {
    core::AtomicDirectory directory(job.temporary);  // removed if anything below throws
    const std::vector<Outcome> reports = collect_reports(job, own, give_up);
    Span span(recorder, Category::kUserAnnotation, "ckpt.commit");
    return commit(job, reports, directory).string();
  });
  if (outcome.failed()) outcome.error = outcome.error->within(cat("save iteration ", job.info.iteration));
  return outcome;
}

}  // namespace ms::ckpt
