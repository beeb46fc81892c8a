#include "tools/guard.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "core/comm/agree.h"
#include "core/log.h"
#include "core/signals.h"
#include "kernels/isa.h"

namespace ms::tools {

std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  for (std::string& arg : args) {
    if (arg == "--") break;  // the rest belongs to another program
    if (arg.rfind("--", 0) != 0) continue;
    const auto name_end = static_cast<std::ptrdiff_t>(std::min(arg.find('='), arg.size()));
    std::replace(arg.begin(), arg.begin() + name_end, '_', '-');
  }
  return args;
}

void check_instruction_set() {
  try {
    kernels::active_isa();
  } catch (const std::invalid_argument& e) {
    throw core::Error(core::ErrorCode::kInvalidArgument, e.what());
  }
}

core::Error see_help(const core::Error& error, std::string_view command) {
  const std::string text = error.what();
  const bool ended = text.ends_with('?') || text.ends_with('.');
  return core::Error(error.code(), core::cat(text, ended ? " See " : ". See ", command, " --help"));
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) std::_Exit(128 + SIGPIPE);
  throw core::Error(core::ErrorCode::kIo, "cannot write to stdout");
}

void print_version(std::string_view name) { print(core::cat(name, " ", MS_VERSION, "\n")); }

int run_guarded(std::string_view name, const std::function<int()>& body, const std::function<void(int)>& when_alone,
                const std::function<bool(std::string_view)>& may_report) {
  const auto fail = [&](core::ErrorCode code, const std::string& text, bool alone) {
    if (alone && may_report && !may_report(text)) {
      core::log_debug(name, text);
    } else if (alone || core::log_rank() == 0) {  // an error that all ranks know is printed once
      core::log_error(name, text);
    }
    const int signal = core::termination_signal();
    const int exit_code = signal != 0 && code != core::ErrorCode::kPeerFailed ? 128 + signal : core::exit_code(code);
    if (alone && when_alone) when_alone(exit_code);
    return exit_code;
  };
  try {
    return body();
  } catch (const core::AgreedError& e) {
    return fail(e.code(), e.what(), false);
  } catch (const core::Error& e) {
    return fail(e.code(), e.what(), true);
  } catch (const std::bad_alloc&) {
    return fail(core::ErrorCode::kOutOfMemory, "out of memory", true);
  } catch (const std::filesystem::filesystem_error& e) {
    return fail(core::ErrorCode::kIo, core::cat("cannot look at ", e.path1().string(), ": ", e.code().message()), true);
  } catch (const std::exception& e) {
    return fail(core::ErrorCode::kInternal, core::cat("internal error: ", e.what(), ". Please report it."), true);
  }
}

}  // namespace ms::tools
