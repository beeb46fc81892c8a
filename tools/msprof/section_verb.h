// Base class of the verbs that analyse sections (profile/sections.h) and print them.
#pragma once

#include "profile/sections.h"
#include "tools/msprof/input_flags.h"
#include "tools/msprof/output_flags.h"
#include "tools/msprof/verb.h"

namespace ms::tools::msprof {

class SectionVerb : public Verb {
 public:
  // flags: of the example in the help text, after "msprof NAME traces".
  SectionVerb(const char* name, const char* help, profile::Sections sections, const char* example_flags = "")
      : name_(name), help_(help), sections_(std::move(sections)), example_flags_(example_flags) {}
  const char* name() const final { return name_; }
  const char* help() const final { return help_; }
  void add(CLI::App& verb) final;
  int run(const std::vector<std::string>& arguments) override;

 protected:
  virtual void add_flags(CLI::App&) {}
  virtual profile::Sections sections() const { return sections_; }
  virtual profile::AnalysisOptions options() const;
  virtual std::string text(const profile::Store& store, const profile::Results& results) const;
  // Writes files in addition to the tables.
  virtual void write_files(profile::Store&, const profile::Results&) const {}

  InputFlags input_;
  OutputFlags output_;

 private:
  const char* name_;
  const char* help_;
  profile::Sections sections_;
  const char* example_flags_;
};

// Flags shared by several of these verbs.
struct AlignFlag {
  std::string align = "auto";
  void add(CLI::App& verb);
  profile::AlignMode mode() const;  // throws kInvalidArgument
};

struct StacksFlag {
  std::string collapsed;
  void add(CLI::App& verb);
  void write(const profile::Store& store, const profile::Results& results) const;
};

struct CountersFlag {
  std::string counters;
  void add(CLI::App& verb);
  void write(profile::Store& store, const profile::Results& results) const;
};

struct QueueLimitFlag {
  int64_t queue_limit = profile::kQueueLimit;
  void add(CLI::App& verb);
};

struct KernelDelayFlag {
  int64_t consecutive_kernel_delay_ns = profile::kConsecutiveKernelDelay;
  void add(CLI::App& verb);
};

}  // namespace ms::tools::msprof
