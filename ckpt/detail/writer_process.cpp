#include "ckpt/detail/writer_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "ckpt/detail/assemble.h"
#include "ckpt/detail/retention_thread.h"
#include "ckpt/manifest.h"
#include "ckpt/writer.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/scheduling.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Maximum time from the end of the trainer until the writer of a rank that has its snapshot creates its file.
constexpr double kOrphanPatienceS = 5;

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::kIo, cat("writer process: ", what, ": ", std::strerror(errno)));
}

// Messages on the socket: u64 length, then that many bytes.
void send_message(int socket, const std::string& text) {
  const uint64_t length = text.size();
  std::string message(reinterpret_cast<const char*>(&length), sizeof length);
  message += text;
  for (size_t sent = 0; sent < message.size();) {
    const ssize_t n = ::send(socket, message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("send");
    sent += static_cast<size_t>(n);
  }
}

bool receive(int socket, void* data, size_t size) {
  for (size_t got = 0; got < size;) {
    const ssize_t n = ::recv(socket, static_cast<char*>(data) + got, size - got, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    got += static_cast<size_t>(n);
  }
  return true;
}

// Returns false at the end of the stream.
bool receive_message(int socket, std::string& text) {
  uint64_t length = 0;
  if (!receive(socket, &length, sizeof length)) return false;
  text.resize(length);
  return receive(socket, text.data(), length);
}

std::string encode_job(const SaveJob& job, int buffer, const std::byte* base) {
  Manifest manifest;
  manifest.info = job.info;
  manifest.producer = job.producer;
  RankFileRecord record;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < job.boxes.size(); ++i) {
    record.boxes.push_back({job.boxes[i], {}, 0, job.hashes[i].chunk_xxh3, false, {}});
    record.logical.push_back(job.hashes[i].logical);
    offsets.push_back(job.data[i] - base);
  }
  const json message = {{"root", job.root.string()},
                        {"temporary", job.temporary.string()},
                        {"rank", job.rank},
                        {"writers", job.writers},
                        {"manifest", dump_manifest(manifest)},
                        {"boxes", encode_records({record})},
                        {"offsets", offsets},
                        {"buffer", buffer},
                        {"write_path", static_cast<int>(job.file.write_path)},
                        {"bytes_per_second", job.file.bytes_per_second},
                        {"full_every", job.full_every},
                        {"compress", job.file.compress},
                        {"compress_threads", job.compress_threads},
                        {"keep_last", job.retention.keep_last},
                        {"retain_interval", job.retention.retain_interval},
                        {"timeout_s", job.timeout_s}};
  std::string text;
  json::to_msgpack(message, text);
  return text;
}

struct ReceivedJob {
  SaveJob job;
  void* mapping = nullptr;
  size_t mapped_bytes = 0;

  ReceivedJob() = default;
  ReceivedJob(const ReceivedJob&) = delete;
  ReceivedJob& operator=(const ReceivedJob&) = delete;
  ~ReceivedJob() {
    if (mapping != nullptr) ::munmap(mapping, mapped_bytes);
  }
};

std::unique_ptr<ReceivedJob> decode_job(const std::string& text, const std::vector<int>& memory) {
  const json message = json::from_msgpack(text);
  auto received = std::make_unique<ReceivedJob>();
  SaveJob& job = received->job;
  job.root = message.at("root").get<std::string>();
  job.temporary = message.at("temporary").get<std::string>();
  job.rank = message.at("rank");
  job.writers = message.at("writers").get<std::vector<int>>();
  const Manifest manifest = parse_manifest(message.at("manifest").get<std::string>(), "the trainer's message");
  job.info = manifest.info;
  job.producer = manifest.producer;
  job.file.write_path = static_cast<core::WritePath>(message.at("write_path").get<int>());
  job.file.bytes_per_second = message.at("bytes_per_second");
  job.full_every = message.at("full_every");
  job.file.compress = message.at("compress");
  job.compress_threads = message.at("compress_threads");
  job.retention = {message.at("keep_last"), message.at("retain_interval")};
  job.timeout_s = message.at("timeout_s");
  const std::vector<int64_t> offsets = message.at("offsets");
  const RankFileRecord record = decode_records(message.at("boxes").get<std::string>()).front();
  int64_t end = 0;
  for (size_t i = 0; i < record.boxes.size(); ++i) {
    const core::ShardedTensor& box = record.boxes[i].tensor;
    job.boxes.push_back(box);
    job.hashes.push_back({record.boxes[i].chunk_xxh3, record.logical[i]});
    end = std::max(end, offsets.at(i) + core::num_elements(box.local_shape) * core::size_of(box.dtype));
  }
  if (end == 0) return received;
  const int descriptor = memory.at(message.at("buffer").get<size_t>());
  void* mapping = ::mmap(nullptr, static_cast<size_t>(end), PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED) fail("mmap of the snapshot");
  received->mapping = mapping;
  received->mapped_bytes = static_cast<size_t>(end);
  for (const int64_t offset : offsets) job.data.push_back(static_cast<const std::byte*>(mapping) + offset);
  return received;
}

// Inherited descriptors (pipes of mpirun, sockets of MPI) would keep the job from ending.
void close_all_but(const std::vector<int>& kept) {
  std::vector<int> open;
  if (DIR* directory = ::opendir("/proc/self/fd")) {
    while (const dirent* entry = ::readdir(directory)) open.push_back(std::atoi(entry->d_name));
    ::closedir(directory);
  }
  for (const int descriptor : open) {
    if (descriptor > 2 && std::find(kept.begin(), kept.end(), descriptor) == kept.end()) ::close(descriptor);
  }
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int descriptor = 0; descriptor <= 2; ++descriptor) ::dup2(null, descriptor);
}

// Receives jobs as they arrive, so that the trainer never waits for a full socket, and executes them in order.
class Server {
 public:
  Server(int socket, std::vector<int> memory) : socket_(socket), memory_(std::move(memory)) {}

  void run() {
    std::thread reader([this] { read(); });
    while (const auto job = next()) {
      const Outcome outcome = write_part(job->job, incremental_, nullptr);
      Outcome told = outcome;
      if (!job->job.coordinator()) {
        const Outcome left = outcome_of([&] { leave_report(job->job, outcome); });
        if (left.failed()) told = left;  // the trainer must report it
      }
      tell(told);
      if (job->job.coordinator()) {
        const Outcome verdict = commit_reported(
            job->job, outcome, [&] { return give_up(job->job); }, nullptr);
        if (!verdict.failed()) retention_.committed(job->job.root, verdict.content, job->job.retention);
        tell(verdict);
      }
    }
    reader.join();
  }

 private:
  void read() {
    std::string text;
    while (receive_message(socket_, text)) {
      std::unique_ptr<ReceivedJob> job;
      try {
        job = decode_job(text, memory_);
      } catch (const std::exception& e) {
        tell({{}, Error(ErrorCode::kInternal, e.what())});
        continue;
      }
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
      changed_.notify_all();
    }
    std::lock_guard lock(mutex_);
    orphaned_ = true;
    orphaned_at_ = Clock::now();
    changed_.notify_all();
  }

  std::unique_ptr<ReceivedJob> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return orphaned_ || !jobs_.empty(); });
    if (jobs_.empty()) return nullptr;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  // After the trainer's end: a rank that has not started by now had no snapshot when it died; a rank that has is waited
  // for.
  std::optional<Error> give_up(const SaveJob& job) {
    {
      std::lock_guard lock(mutex_);
      if (!orphaned_ || std::chrono::duration<double>(Clock::now() - orphaned_at_).count() < kOrphanPatienceS)
        return std::nullopt;
    }
    if (all_have_begun(job)) return std::nullopt;
    return Error(ErrorCode::kPeerFailed, "the trainer has ended, and a rank has taken no snapshot");
  }

  void tell(const Outcome& outcome) {
    try {
      send_message(socket_, outcome.encode());
    } catch (const Error&) {  // the trainer is gone; finish the job without it
    }
  }

  int socket_;
  std::vector<int> memory_;
  Incremental incremental_;
  RetentionThread retention_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<ReceivedJob>> jobs_;
  bool orphaned_ = false;
  Clock::time_point orphaned_at_;
};

}  // namespace

WriterProcess::WriterProcess(const Options& options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  socket_ = ends[0];
  std::vector<int> kept = {ends[1]};
  for (int i = 0; i < options.buffers; ++i) {
    memory_.push_back(::memfd_create("msuite-snapshot", MFD_CLOEXEC));
    if (memory_.back() < 0) fail("memfd_create");
    kept.push_back(memory_.back());
  }
  std::vector<std::string> words = options.command;
  words.push_back(std::to_string(options.nice));
  std::string cpus;
  for (const int cpu : options.cpus) cpus += cat(cpus.empty() ? "" : ",", cpu);
  words.push_back(cpus);
  for (const int descriptor : kept) words.push_back(std::to_string(descriptor));
  if (options.lock_descriptor >= 0) kept.push_back(options.lock_descriptor);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : kept) posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor);
  if (options.lock_descriptor >= 0) words.push_back(cat("lock=", options.lock_descriptor));
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, words[0].c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (error != 0) {
    errno = error;
    fail(words[0].c_str());
  }
}

WriterProcess::~WriterProcess() {
  ::close(socket_);
  for (const int descriptor : memory_) ::close(descriptor);
  if (pid_ > 0 && unanswered_ == 0) ::waitpid(pid_, nullptr, 0);
}

void WriterProcess::submit(const SaveJob& job, int buffer, const std::byte* base) {
  send_message(socket_, encode_job(job, buffer, base));
  unanswered_ += job.coordinator() ? 2 : 1;
}

Outcome WriterProcess::next_outcome() {
  std::string text;
  if (!receive_message(socket_, text)) {
    throw Error(ErrorCode::kIo, cat("the writer process ", pid_, " has ended. Was it killed, or short of memory?"));
  }
  --unanswered_;
  return Outcome::decode(text);
}

void WriterProcess::hang_up() { ::shutdown(socket_, SHUT_RDWR); }

int run_writer_process(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) return 2;
  std::vector<int> descriptors, kept;
  for (size_t i = 2; i < arguments.size(); ++i) {
    const bool lock = arguments[i].rfind("lock=", 0) == 0;
    kept.push_back(std::atoi(arguments[i].c_str() + (lock ? 5 : 0)));
    if (!lock) descriptors.push_back(kept.back());
  }
  close_all_but(kept);
  core::schedule_this_thread(std::atoi(arguments[0].c_str()), core::parse_cpu_list(arguments[1]));
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
  Server(descriptors[0], {descriptors.begin() + 1, descriptors.end()}).run();
  return 0;
}

}  // namespace ms::ckpt
