// What the checkpoint benches share: time, memory and caches of a run, and values such as a trained model has.
#pragma once

#include <fcntl.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/io/file.h"
#include "core/rng.h"

namespace ms::bench {

inline double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline int64_t peak_memory_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

inline double load() {
  double load_1 = 0;
  std::ifstream("/proc/loadavg") >> load_1;
  return load_1;
}

// The main of a bench: body gets a folder of its own in argv[1], which is removed afterwards. --help prints the usage.
inline int in_folder(int argc, char** argv, const char* usage,
                     const std::function<int(const std::filesystem::path& folder)>& body) {
  const bool help = argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0);
  if (help || argc < 2 || argv[1][0] == '-') {
    std::fprintf(help ? stdout : stderr, "usage: %s\n", usage);
    return help ? 0 : 2;
  }
  const auto folder = std::filesystem::path(argv[1]) / ("ms_bench_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  int code = 1;
  try {
    code = body(folder);
  } catch (const core::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  std::filesystem::remove_all(folder);
  return code;
}

// By the kernel where root may, else these files' alone.
inline void drop_page_cache(const std::filesystem::path& directory) {
  ::sync();
  std::ofstream("/proc/sys/vm/drop_caches") << "3";
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const core::File file = core::File::open_read(entry.path().string());
    ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// In a process of its own, as msckpt is; returns its peak memory in KiB, or throws kInternal if it failed.
inline int64_t in_child(const std::filesystem::path& folder, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
    try {
      body();
      std::ofstream(folder / "peak") << peak_memory_kib();
    } catch (const core::Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  MS_CHECK(status == 0, "the child ends with status ", status);
  int64_t peak = 0;
  std::ifstream(folder / "peak") >> peak;
  return peak;
}

inline void copy_and_sync(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::string command =
      "cp -r '" + from.string() + "' '" + to.string() + "' && sync -f '" + to.parent_path().string() + "'";
  MS_CHECK(std::system(command.c_str()) == 0, command);
}

// Normal weights of standard deviation 0.02, fp32 or bf16: what compression wants to see.
class NormalWeights {
 public:
  NormalWeights() : normal_(size_t{1} << 20) {
    const core::Rng rng(1, "weights");
    for (size_t i = 0; i < normal_.size(); ++i) normal_[i] = 0.02F * rng.normal(i);
  }
  void fill(std::byte* out, int64_t size_bytes, int64_t item, uint64_t seed) const {
    for (int64_t i = 0; i + item <= size_bytes; i += item) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const auto* value = reinterpret_cast<const std::byte*>(&normal_[seed >> 44]);
      std::memcpy(out + i, value + 4 - item, static_cast<size_t>(item));  // bf16: the upper half of an fp32
    }
  }

 private:
  std::vector<float> normal_;
};

}  // namespace ms::bench
