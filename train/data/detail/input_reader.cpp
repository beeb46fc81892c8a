#include "train/data/detail/input_reader.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace ms::train::detail {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = size_t{1} << 20;
constexpr size_t kBatchFiles = 256;
constexpr size_t kReadBytes = size_t{1} << 18;

bool is_jsonl(const std::string& path, InputFormat format) {
  if (format != InputFormat::kAuto) return format == InputFormat::kJsonl;
  const std::string extension = fs::path(path).extension().string();
  return path == "-" || extension == ".jsonl" || extension == ".json";
}

bool matches(const fs::path& relative, const std::vector<std::string>& globs) {
  for (const std::string& glob : globs) {
    const bool whole = glob.find('/') != std::string::npos;
    if (::fnmatch(glob.c_str(), whole ? relative.c_str() : relative.filename().c_str(), 0) == 0) return true;
  }
  return false;
}

void add_folder(const std::string& folder, const std::vector<std::string>& globs, std::vector<std::string>& files) {
  const size_t first = files.size();
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code dangling;  // a dangling link is not a file
    if (it->is_regular_file(dangling) && matches(it->path().lexically_relative(folder), globs)) {
      files.push_back(it->path().string());
    }
  }
  if (error) throw Error(ErrorCode::kIo, cat("cannot list the files of ", folder, ": ", error.message()));
  if (files.size() == first) {
    throw Error(ErrorCode::kNotFound, cat("no file under ", folder, " matches --glob ", globs));
  }
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
}

}  // namespace

// A descriptor that is read in pieces, with the rest of an unfinished line.
struct InputReader::Stream {
  explicit Stream(const std::string& where) : path(where) {
    fd = where == "-" ? STDIN_FILENO : ::open(where.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                  cat("cannot open ", where, ": ", std::strerror(errno)));
    }
  }
  ~Stream() {
    if (fd > STDERR_FILENO) ::close(fd);
  }
  std::string name() const { return path == "-" ? "stdin" : path; }

  // Appends some bytes to pending; false at the end, and if stopped while waiting.
  bool read_some(const std::function<bool()>& stopped) {
    pollfd ready{fd, POLLIN, 0};
    for (;;) {
      // A read is restarted after a signal handler, so the signal must be checked here.
      if (stopped()) return false;
      const int n = ::poll(&ready, 1, 200);
      if (n > 0) break;
      if (n < 0 && errno != EINTR)
        throw Error(ErrorCode::kIo, cat("cannot wait for ", name(), ": ", std::strerror(errno)));
    }
    const size_t old = pending.size();
    pending.resize(old + kReadBytes);
    ssize_t n = 0;
    do {
      n = ::read(fd, pending.data() + old, kReadBytes);
    } while (n < 0 && errno == EINTR);
    if (n < 0) throw Error(ErrorCode::kIo, cat("cannot read ", name(), ": ", std::strerror(errno)));
    pending.resize(old + static_cast<size_t>(n));
    return n > 0;
  }

  std::string path;
  int fd = -1;
  std::string pending;
  int64_t line = 1;  // number of the first line in pending
};

std::vector<std::string> list_files(const PreprocessOptions& options) {
  std::vector<std::string> inputs = options.inputs;
  if (options.format == InputFormat::kPaths) {
    inputs.clear();
    for (const std::string& list : options.inputs) {
      InputReader reader({list}, InputFormat::kJsonl, [] { return false; });
      while (const auto batch = reader.next()) {
        for (size_t at = 0; at < batch->lines.size();) {
          const size_t end = std::min(batch->lines.find('\n', at), batch->lines.size());
          if (end > at) inputs.push_back(batch->lines.substr(at, end - at));
          at = end + 1;
        }
      }
    }
    if (inputs.empty()) throw Error(ErrorCode::kNotFound, cat("the list of paths ", options.inputs, " is empty"));
  }
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    std::error_code error;
    if (input == "-") {
      files.push_back(input);
    } else if (fs::is_directory(input, error)) {
      add_folder(input, options.globs, files);
    } else if (fs::exists(input, error)) {
      files.push_back(input);
    } else {
      throw Error(ErrorCode::kNotFound, cat("there is no file or folder ", input));
    }
  }
  return files;
}

InputReader::InputReader(std::vector<std::string> files, InputFormat format, std::function<bool()> stopped)
    : files_(std::move(files)), format_(format), stopped_(std::move(stopped)) {}
InputReader::~InputReader() = default;

std::optional<InputBatch> InputReader::next() {
  for (;;) {
    if (stopped_()) return std::nullopt;
    if (stream_) {
      InputBatch batch = next_lines();
      if (!batch.lines.empty()) return batch;
      stream_.reset();
    }
    if (next_file_ == files_.size()) return std::nullopt;
    if (is_jsonl(files_[next_file_], format_)) {
      stream_ = std::make_unique<Stream>(files_[next_file_++]);
      continue;
    }
    if (files_[next_file_] == "-") {
      ++next_file_;
      Stream stream("-");
      while (stream.read_some(stopped_)) {
      }
      InputBatch batch;
      batch.source = "stdin";
      batch.size_bytes = static_cast<int64_t>(stream.pending.size());
      batch.text = std::move(stream.pending);
      return batch;
    }
    InputBatch batch;
    while (next_file_ < files_.size() && batch.text_files.size() < kBatchFiles &&
           batch.size_bytes < static_cast<int64_t>(kBatchBytes) && files_[next_file_] != "-" &&
           !is_jsonl(files_[next_file_], format_)) {
      std::error_code error;
      const auto size = fs::file_size(files_[next_file_], error);
      if (!error) batch.size_bytes += static_cast<int64_t>(size);  // otherwise the worker's read reports the error
      batch.text_files.push_back(files_[next_file_++]);
    }
    return batch;
  }
}

InputBatch InputReader::next_lines() {
  Stream& stream = *stream_;
  bool more = true;
  size_t end = 0;  // after the last whole line; none was complete in pending before
  while (more && (stream.pending.size() < kBatchBytes || end == 0)) {
    const size_t searched = stream.pending.size();
    more = stream.read_some(stopped_);
    const size_t newline = std::string_view(stream.pending).substr(searched).rfind('\n');
    if (newline != std::string_view::npos) end = searched + newline + 1;
  }
  if (!more) end = stream.pending.size();  // the last line may lack its newline
  InputBatch batch;
  batch.source = stream.name();
  batch.first_line = stream.line;
  batch.lines = stream.pending.substr(0, end);
  batch.size_bytes = static_cast<int64_t>(batch.lines.size());
  stream.pending.erase(0, end);
  stream.line += std::count(batch.lines.begin(), batch.lines.end(), '\n');
  return batch;
}

}  // namespace ms::train::detail
