// The main function of a fuzz target without libFuzzer: replays the corpus, and a fixed set of mutations of it.
//
//   fuzz.<reader> CORPUS_FOLDER [CORPUS_FOLDER..]
//
// Inputs for every file: the file, every truncation, every single bit flipped, every 1, 2, 4 and 8 bytes set to 0, 1,
// the largest signed and unsigned value, and every decimal number replaced by such. MS_FUZZ_RUNS limits the runs per
// file (default 4000, spread evenly over all inputs; 0: all). MS_FUZZ_RANDOM=N: instead, N inputs with a few random
// changes each, of all files in turn; MS_TEST_SEED repeats a run.
//
// A reader that crashes, hangs, or allocates more memory than its input justifies ends the process; the input is saved
// as ./crash-<process>.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MS_OWN_MALLOC 0  // the sanitizer's allocator has its own limits
#else
#define MS_OWN_MALLOC 1
#endif

namespace {

constexpr int64_t kMemoryBase = int64_t{MS_FUZZ_BASE_MIB} << 20;  // libraries, tables, the reader's own buffers
constexpr int64_t kMemoryPerByte = 64;                            // per byte of input
constexpr double kSecondsPerInput = 10;                           // CPU time; ctest limits waiting readers

std::string current;                 // the current input
std::atomic<int64_t> live_bytes{0};  // allocated by the whole process
std::atomic<int64_t> live_limit{INT64_MAX};

[[noreturn]] void die(const char* why) {
  // Must not allocate: the caller may be the allocator.
  (void)!::write(STDERR_FILENO, why, std::strlen(why));
  std::abort();
}

void leave_the_input(int signal) {
  char name[64];
  std::snprintf(name, sizeof name, "crash-%d", static_cast<int>(::getpid()));
  const int fd = ::open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0) (void)!::write(fd, current.data(), current.size());
  (void)!::write(STDERR_FILENO, "input left in ", 14);
  (void)!::write(STDERR_FILENO, name, std::strlen(name));
  (void)!::write(STDERR_FILENO, "\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// CPU time of all threads: a busy machine or a stopped process adds nothing.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void run(const std::string& input) {
  current = input;
  live_limit = live_bytes + kMemoryBase + kMemoryPerByte * static_cast<int64_t>(input.size());
  const double start = cpu_seconds();
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  live_limit = INT64_MAX;
  if (cpu_seconds() - start > kSecondsPerInput) die("the reader took too long\n");
}

// All mutations of a file, numbered, in a fixed order.
class Mutations {
 public:
  explicit Mutations(const std::string& file) : file_(file) {
    for (size_t i = 0; i < file.size(); ++i) {
      if (!is_digit(i) || (i > 0 && is_digit(i - 1))) continue;
      size_t end = i;
      while (end < file.size() && is_digit(end)) ++end;
      numbers_.push_back({i, end - i});
    }
    const size_t words = file.size() * std::size(kWidths) * std::size(kWords);
    kinds_ = {file.size(), file.size() * 8, words, numbers_.size() * std::size(kNumbers)};
  }

  static constexpr const char* kNumbers[] = {
      "0",     "1",    "-1", "2147483648", "4294967297", "9223372036854775807", "18446744073709551615",
      "1e999", "1e18", "0.5"};

  size_t count() const { return kinds_[0] + kinds_[1] + kinds_[2] + kinds_[3]; }

  std::string make(size_t index) const {
    std::string text = file_;
    if (index < kinds_[0]) return text.substr(0, index);
    index -= kinds_[0];
    if (index < kinds_[1]) {
      text[index / 8] = static_cast<char>(text[index / 8] ^ (1 << (index % 8)));
      return text;
    }
    index -= kinds_[1];
    if (index < kinds_[2]) {
      const size_t width = kWidths[index % std::size(kWidths)];
      index /= std::size(kWidths);
      const Word word = kWords[index % std::size(kWords)];
      const size_t at = index / std::size(kWords);
      for (size_t i = 0; i < width && at + i < text.size(); ++i) {  // little endian
        text[at + i] = static_cast<char>(i == 0 ? word.low : i + 1 == width ? word.high : word.middle);
      }
      return text;
    }
    index -= kinds_[2];
    const auto [at, size] = numbers_[index / std::size(kNumbers)];
    return text.replace(at, size, kNumbers[index % std::size(kNumbers)]);
  }

 private:
  struct Word {
    uint8_t low, middle, high;
  };
  static constexpr size_t kWidths[] = {1, 2, 4, 8};
  static constexpr Word kWords[] = {{0, 0, 0}, {1, 0, 0}, {0xff, 0xff, 0xff}, {0xfe, 0xff, 0xff}, {0xff, 0xff, 0x7f}};
  bool is_digit(size_t i) const { return std::isdigit(static_cast<unsigned char>(file_[i])) != 0; }

  const std::string& file_;
  std::vector<std::pair<size_t, size_t>> numbers_;
  std::vector<size_t> kinds_;
};

// One to eight random changes: bytes set, removed, copied over others or inserted, numbers replaced.
std::string mutate(const std::string& file, std::mt19937_64& random) {
  std::string text = file;
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % std::max<size_t>(n, 1)); };
  for (size_t changes = 1 + below(8); changes > 0 && !text.empty(); --changes) {
    const size_t at = below(text.size()), size = 1 + below(below(4) == 0 ? text.size() : 16);
    switch (below(7)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 2:
        text.erase(at, size);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), size));
        break;
      case 4: {
        const std::string piece = text.substr(below(text.size()), size);
        text.replace(at, piece.size(), piece);
        break;
      }
      case 5: {
        constexpr std::string_view kMarks = "{}[]\",:\\ \n0-e.\t\0";
        text[at] = kMarks[below(kMarks.size())];
        break;
      }
      default: {
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const size_t end = std::min(text.find_first_not_of("0123456789", digit), text.size());
        text.replace(digit, end - digit, Mutations::kNumbers[below(std::size(Mutations::kNumbers))]);
      }
    }
  }
  return text;
}

size_t run_random(const std::vector<std::string>& paths, size_t runs) {
  const char* given = std::getenv("MS_TEST_SEED");
  const uint64_t seed = given == nullptr ? 20261122 : std::strtoull(given, nullptr, 10);
  std::printf("MS_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::vector<std::string> files;
  for (const std::string& path : paths) files.push_back(ms::test::read_file(path));
  for (size_t i = 0; i < runs; ++i) run(mutate(files[i % files.size()], random));
  return runs;
}

size_t replay(const std::string& path, size_t max_runs) {
  const std::string file = ms::test::read_file(path);
  run(file);
  const Mutations mutations(file);
  const size_t count = mutations.count();
  // An odd step, so that all bits of a byte are reached.
  const size_t step = max_runs == 0 || count <= max_runs ? 1 : (count / max_runs) | 1;
  size_t runs = 1;
  for (size_t i = 0; i < count; i += step, ++runs) run(mutations.make(i));
  return runs;
}

}  // namespace

#if MS_OWN_MALLOC
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);

static void* counted(void* block) {
  if (block != nullptr && (live_bytes += static_cast<int64_t>(malloc_usable_size(block))) > live_limit) {
    die("the reader asks for more memory than its input justifies\n");
  }
  return block;
}

static void check(size_t size) {
  if (static_cast<int64_t>(std::min<size_t>(size, INT64_MAX / 2)) > live_limit - live_bytes) {
    die("the reader asks for more memory than its input justifies\n");
  }
}

void* malloc(size_t size) {
  check(size);
  return counted(__libc_malloc(size));
}
void* calloc(size_t count, size_t size) {
  size_t bytes = 0;
  check(__builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes);
  return counted(__libc_calloc(count, size));
}
void* realloc(void* block, size_t size) {
  const auto before = static_cast<int64_t>(block == nullptr ? 0 : malloc_usable_size(block));
  check(size);
  void* moved = __libc_realloc(block, size);
  if (moved != nullptr || size == 0) live_bytes -= before;
  return counted(moved);
}
void* memalign(size_t alignment, size_t size) {
  check(size);
  return counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block == nullptr ? 12 /* ENOMEM */ : 0;
}
void free(void* block) {
  if (block != nullptr) live_bytes -= static_cast<int64_t>(malloc_usable_size(block));
  __libc_free(block);
}
}
#endif

int main(int argc, char** argv) {
  // Readers that need a path get a file in memory: disk I/O would take most of the time.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, leave_the_input);
  const char* given = std::getenv("MS_FUZZ_RUNS");
  const size_t max_runs = given == nullptr ? 4000 : std::strtoull(given, nullptr, 10);
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "no corpus\n");
    return 1;
  }
  const char* random = std::getenv("MS_FUZZ_RANDOM");
  size_t runs = random == nullptr ? 0 : run_random(files, std::strtoull(random, nullptr, 10));
  for (const std::string& file : files) runs += random == nullptr ? replay(file, max_runs) : 0;
  std::printf("%zu files, %zu inputs\n", files.size(), runs);
  return 0;
}
