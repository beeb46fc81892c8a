// mstrain: trains decoder-only language models across MPI ranks. Connects modules only; train/README.md is the user's
// manual, train/DEVELOPING.md describes the modules.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <initializer_list>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>

#include "ckpt/commit.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"
#include "convert/detect.h"
#include "convert/huggingface.h"
#include "core/comm/agree.h"
#include "core/comm/flight_recorder.h"
#include "core/comm/launcher.h"
#include "core/comm/single_transport.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/yaml.h"
#include "core/layout/process_group_table.h"
#include "core/log.h"
#include "core/path_list.h"
#include "core/printable.h"
#include "core/signals.h"
#include "core/thread_pool.h"
#include "profile/convert.h"
#include "tools/command_reference.h"
#include "tools/guard.h"
#include "train/data/tokenizer.h"
#include "train/deepspeed_config.h"
#include "train/empty_flags.h"
#include "train/features/active_features.h"
#include "train/features/hybrid_context_parallel.h"
#include "train/group_ranking.h"
#include "train/layerzero_config.h"
#include "train/loop/benchmark.h"
#include "train/loop/trainer.h"
#include "train/megatron_yaml.h"
#include "train/parallel/process_groups.h"
#include "train/parallel/rank_threads.h"
#include "train/plan.h"

namespace {

using namespace ms;

constexpr const char* kIntroduction = R"(mstrain: trains decoder-only language models on CPU ranks.

  mpirun -n 2 mstrain --tensor-model-parallel-size 2 --sequence-parallel --num-layers 8 --hidden-size 512 \
    --num-attention-heads 8 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear \
    --hidden-dropout 0 --attention-dropout 0 \
    --seq-length 512 --micro-batch-size 4 --global-batch-size 8 --train-iters 100 --lr 3e-4 --bf16 \
    --data-path corpus_text_document --save checkpoints --save-interval 50

Flags have Megatron-LM's names and meaning. '_' passes for '-'. Results go to stdout, the log to stderr.
  --data-path -          reads the data prefix from stdin (as msdata prints it)
)";

constexpr std::string_view kWriterArgument = "--checkpoint-writer-process";

// Flags of the program itself, in addition to the configuration of a run.
struct ProgramFlags {
  std::string config_file, yaml_file, deepspeed_file, completion;
  bool deepspeed = false, help = false, version = false, man = false, print_config = false, print_flags = false,
       benchmark = false;
  bool print_plan = false, print_active_features = false, json = false;
  std::optional<int64_t> check_config, plan_world_size, plan_ranks_per_node;  // ranks
  std::vector<std::string> notices;                                           // of the files that flags name

  // Calls visit(name, target, value, help) for each flag.
  template <class Visitor>
  void each(Visitor&& visit) {
    visit("config", &config_file, "FILE",
          "JSON with any of the flags (as \"num_layers\": 8), or a Hugging Face config.json");
    visit("yaml-cfg", &yaml_file, "FILE",
          "YAML with arguments under Megatron's names, as its --yaml-cfg takes them; flags override it");
    visit(
        "deepspeed-config", &deepspeed_file, "FILE",
        "DeepSpeed's JSON: batch sizes, precision, optimizer and zero_optimization become the flags that say the same; "
        "a flag that says something else is an error");
    visit("deepspeed", &deepspeed, "", "Needs --deepspeed_config, which alone says as much");
    visit("print-config", &print_config, "", "Print the resulting configuration as JSON and end");
    visit("check-config", &check_config, "N",
          "Check flags and --config as a run on N ranks does, without data, MPI or ranks, and end: exit code 0, or 2 "
          "with the first rule that does not hold");
    visit("print-plan", &print_plan, "",
          "Print what each rank will hold, compute and send in a step, its groups and its schedule, and end; reads no "
          "data");
    visit("print-active-features", &print_active_features, "",
          "Print the features that the flags switch on, with their levels and what they do, and end; --json: every "
          "feature");
    visit("plan-world-size", &plan_world_size, "N",
          "With --print-plan and --print-active-features: as on N ranks, without MPI; default: the ranks that were "
          "started");
    visit("plan-ranks-per-node", &plan_ranks_per_node, "N",
          "With --print-plan: print also what ranks send to other nodes, of which each has N ranks");
    visit("print-flags", &print_flags, "",
          "Print every flag as JSON and end: what it takes, what it is read as, why it is refused");
    visit(
        "benchmark", &benchmark, "",
        "Time every operator of a step of the configured model against what the machine can do, and end; reads no data "
        "and writes nothing");
    visit("json", &json, "", "With --benchmark, --print-plan and --print-active-features: print JSON, not tables");
    visit("man", &man, "", "Print the manual page and end: mstrain --man | man -l -");
    visit("completion", &completion, "SHELL",
          "Print the completions for bash or zsh and end: source <(mstrain --completion bash)");
    visit("help", &help, "", "Print this and end");
    visit("version", &version, "", "Print the version and end");
  }

  void add_to(core::ConfigFields& fields) {
    each([&](const char* name, core::FieldTarget target, const char*, const char*) {
      fields.program_flag(name, target);
    });
  }

  tools::FlagGroup group() {
    tools::FlagGroup group = {"Options", {}};
    each([&](const std::string& name, core::FieldTarget, const char* value, const char* text) {
      group.flags.push_back({{"--" + name}, value, text, {}});
      if (name == "completion") group.flags.back().choices = {"bash", "zsh"};
    });
    return group;
  }
};

std::string introduction(ProgramFlags& program) {
  std::ostringstream out;
  out << kIntroduction;
  for (const tools::FlagReference& flag : program.group().flags)
    out << "  " << std::left << std::setw(25) << flag.names[0] + (flag.value.empty() ? "" : " " + flag.value)
        << flag.help << "\n";
  out << "\n";
  return out.str();
}

tools::CommandReference reference(ProgramFlags& program, const core::ConfigFields& fields) {
  tools::CommandReference command = {
      "mstrain", "trains decoder-only language models on CPU ranks", "", {}, {program.group()}, {}};
  for (tools::FlagGroup& group : tools::groups_of(fields)) command.groups.push_back(std::move(group));
  return command;
}

bool asks_for(const std::vector<std::string>& args, std::initializer_list<std::string_view> spellings) {
  const auto end = std::find(args.begin(), args.end(), "--");
  return std::find_first_of(args.begin(), end, spellings.begin(), spellings.end()) != end;
}

std::unique_ptr<ckpt::Source> open_source(const std::filesystem::path& path, int64_t iteration) {
  if (iteration > 0) return ckpt::open_native(path / ckpt::generation_name(iteration, 0));
  auto source = convert::open_source(path);
  ckpt::require_model(source->info(), "--load of a foreign format");
  return source;
}

void load_config_file(const std::string& path, core::ConfigFields& fields, train::TrainerConfig& config) {
  std::ifstream file(path);
  if (!file) throw core::Error(core::ErrorCode::kNotFound, core::cat("--config \"", path, "\": no such file"));
  nlohmann::json json;
  try {
    json = core::parse_json(std::string(std::istreambuf_iterator<char>(file), {}), path);
  } catch (const core::Error& e) {
    throw core::Error(core::ErrorCode::kInvalidArgument, core::cat("--config ", e.what()));
  }
  if (json.is_object() && (json.contains("model_type") || json.contains("architectures"))) {
    train::take_model_from(convert::read_hf_config(path).model, fields, config);
    train::take_huggingface_group_ranking(fields, config);
  } else {
    fields.load_json(json, path);
  }
}

// The flags of the file; those of the command line are to be parsed after them.
void load_yaml_file(const std::string& path, core::ConfigFields& fields) {
  std::vector<std::string> flags;
  try {
    flags = train::flags_of_megatron_yaml(core::parse_yaml(core::read_text(path, 1 << 20), path), fields, path);
  } catch (const core::Error& e) {
    const bool is_damaged = e.code() == core::ErrorCode::kCorruptData;
    throw core::Error(is_damaged ? core::ErrorCode::kInvalidArgument : e.code(), core::cat("--yaml-cfg ", e.what()));
  }
  try {
    fields.parse_flags(flags);
  } catch (const core::Error& e) {
    throw core::Error(e.code(), core::cat("--yaml-cfg ", path, ": ", e.what()));
  }
}

// Reads the flags and the files that they name.
void read_flags(const std::vector<std::string>& args, core::ConfigFields& fields, ProgramFlags& program,
                train::TrainerConfig& config) {
  try {
    const std::vector<std::string> rest = fields.parse_flags(args);
    if (!rest.empty())
      throw core::Error(core::ErrorCode::kInvalidArgument, core::cat("unexpected argument ", core::printable(rest[0])));
    if (fields.given("yaml_cfg") && fields.given("config"))
      throw core::Error(core::ErrorCode::kInvalidArgument, "--yaml-cfg and --config exclude each other");
  } catch (const core::Error& e) {
    if (e.code() != core::ErrorCode::kInvalidArgument) throw;
    throw tools::see_help(e, "mstrain");
  }
  if (fields.given("yaml_cfg")) {
    load_yaml_file(program.yaml_file, fields);
    fields.parse_flags(args);
  }
  train::refuse_empty_flags(fields, config);
  const bool plans = program.print_plan || program.print_active_features;
  if (program.json && !program.benchmark && !plans)
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        "--json needs --benchmark, --print-plan or --print-active-features, whose result it is a form of");
  if (program.plan_world_size && !plans)
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      "--plan-world-size needs --print-plan or --print-active-features");
  if (program.plan_ranks_per_node && !program.print_plan)
    throw core::Error(core::ErrorCode::kInvalidArgument, "--plan-ranks-per-node needs --print-plan");
  if (fields.given("config")) load_config_file(program.config_file, fields, config);
  if (program.deepspeed && !fields.given("deepspeed_config"))
    throw core::Error(core::ErrorCode::kInvalidArgument, "--deepspeed needs --deepspeed_config FILE");
  if (fields.given("deepspeed_config")) program.notices = train::load_deepspeed_file(program.deepspeed_file, fields);
  std::ranges::move(train::load_layerzero_file(config, fields), std::back_inserter(program.notices));
}

// MPI must know when it starts whether a thread other than the main one will send.
core::MpiThreads threads_that_send(const train::TrainerConfig& config) {
  const bool writer_sends = config.checkpoint.ckpt_gather && config.checkpoint.ckpt_gather_progress != "main";
  return writer_sends ? core::MpiThreads::kAny : core::MpiThreads::kOne;
}

// Reads what flags and files refer to. The result is the same on every rank, except for stdin, which only rank 0 reads.
void read_what_flags_name(core::ConfigFields& fields, train::TrainerConfig& config, bool may_read_stdin) {
  if (config.checkpoint.use_checkpoint_args && !config.checkpoint.load.empty()) {
    const auto source = open_source(config.checkpoint.load, config.checkpoint.ckpt_step);
    const bool is_of_a_run = !source->info().layout.empty();
    train::take_checkpoint_args(source->info().model, is_of_a_run, fields, config);
    train::take_group_ranking(source->info(), fields, config);
  }
  if (may_read_stdin) config.data.data_path = core::expand_path_list(config.data.data_path, std::cin);
}

// Prints the configuration that a run would use, as far as the flags determine it.
void print_config(core::ConfigFields& fields, train::TrainerConfig& config, int world_size) {
  if (config.model.vocab_size == 0) {
    try {
      config.model.vocab_size = train::make_tokenizer(config.data.tokenizer(0))->vocab_size();
    } catch (const core::Error& e) {
      core::log_warning("mstrain", core::cat("vocab_size is the tokenizer's, of which there is none yet: ", e.what()));
    }
  }
  config.resolve(world_size);
  tools::print(fields.dump().dump(2) + "\n");
}

constexpr int64_t kAnyVocabSize = 32000;

// Checks every rule that needs no data, as for a run on `world_size` ranks (the value of `flag`). Files that the flags
// name may be missing: they are where the run will be. Returns what had to be assumed.
std::vector<std::string> check_config(train::TrainerConfig& config, std::string_view flag, int64_t world_size) {
  constexpr int64_t kMaxRanks = int64_t{1} << 24;
  if (world_size < 1 || world_size > kMaxRanks)
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat(flag, " ", world_size, ": expected 1 to ", kMaxRanks, " ranks"));
  const auto without_missing_files = [](const auto& body) {
    try {
      body();
    } catch (const core::Error& e) {
      if (e.code() != core::ErrorCode::kNotFound) throw;
    }
  };
  without_missing_files([&] { config.data.validate(); });
  int64_t& vocab_size = config.model.vocab_size;
  std::optional<int64_t> known;
  if (vocab_size > 0) known = vocab_size;
  without_missing_files([&] {
    const train::TokenizerChoice choice = config.data.tokenizer(vocab_size);
    const int64_t of_tokenizer = train::make_tokenizer(choice)->vocab_size();
    // The --vocab-size of a NullTokenizer is without its eod, which the model knows too.
    if (vocab_size == 0 || choice.tokenizer_type == "NullTokenizer") known = of_tokenizer;
  });
  vocab_size = known.value_or(kAnyVocabSize);
  config.resolve_and_validate(static_cast<int>(world_size));
  if (known) return {};
  return {
      core::cat("The vocabulary has ", kAnyVocabSize, " tokens: neither --vocab-size nor a tokenizer says how many.")};
}

// For what is no run: nothing is measured there.
void refuse_to_choose(const train::TrainerConfig& config, const char* flag) {
  if (!train::chooses_pipeline(config)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat(flag,
                              " excludes --automated-pipeline and --automated-pipeline-perf, whose layers follow from "
                              "times that a run measures. Give it the --num-layer-list that the run has logged"));
}

std::string plan(train::TrainerConfig& config, const ProgramFlags& program, int world_size) {
  const int64_t ranks = program.plan_world_size.value_or(world_size);
  std::vector<std::string> assumptions = check_config(config, "--plan-world-size", ranks);
  refuse_to_choose(config, "--print-plan");
  assumptions.push_back("The step is applied, not skipped; evaluations, saves and logging come on top.");
  if (!config.training.rampup_batch_size.empty() || !config.training.step_batch_size_schedule.empty())
    assumptions.push_back("The batch has grown to its full size.");
  if (train::keeps_documents_apart(config))
    assumptions.push_back("Each sample is one document: attention between several is not computed.");
  if (train::chooses_degrees(config.parallel)) {
    assumptions.push_back(
        "Activations, comm, tmp and tier are the most of samples of any length up to --seq-length, of which a rank has "
        "up to --max-seqlen-per-dp-cp-rank tokens; all else is of micro-batches that are --seq-length long, on all CP "
        "ranks.");
  } else if (config.parallel.variable_seq_lengths) {
    assumptions.push_back("All micro-batches are --seq-length long: shorter ones compute, send and hold less.");
  }
  if (config.parallel.pipeline_model_parallel_size > 1)
    assumptions.push_back(
        "A tensor that a stage sends is received before it sends the next: one that runs ahead holds several.");
  if (config.parallel.context_parallel_size > 1 && layout::is_adaptive(train::context_algorithm(config.parallel)))
    assumptions.push_back("Ranks that share a sequence compute and send different blocks: the first is planned.");
  if (train::dispatches_tokens(config) && !config.training.fix_router)
    assumptions.push_back("All experts of a layer have the same number of tokens, as with --fix-router.");
  if (ranks > 1 && config.parallel.shared_memory)
    assumptions.push_back("Ranks exchange messages: comm is less where they share memory (README, Shared memory).");
  if (config.training.threads_per_rank == 0)
    assumptions.push_back(
        "Each rank has one thread, and tmp the workspace of one: --threads-per-rank plans with more.");
  const int64_t per_node = program.plan_ranks_per_node.value_or(ranks);
  if (per_node < 1 || ranks % per_node != 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("--plan-ranks-per-node ", per_node, ": expected a divisor of the ", ranks, " ranks"));
  }
  const train::RunPlan plan(config.training_step(static_cast<int>(ranks)), train::active_features(config),
                            std::move(assumptions), program.plan_ranks_per_node ? static_cast<int>(per_node) : 0,
                            config.training.attention_mask_grid);
  return program.json ? plan.json().dump(1) + "\n" : plan.text();
}

std::string active_features(train::TrainerConfig& config, const ProgramFlags& program, int world_size) {
  check_config(config, "--plan-world-size", program.plan_world_size.value_or(world_size));
  return program.json ? train::features_json(config).dump(1) + "\n" : train::active_features_text(config);
}

int run(const std::vector<std::string>& args, std::unique_ptr<core::RankSession>& session,
        core::FlightRecorder& flight) {
  train::TrainerConfig config;
  core::ConfigFields fields = config.fields();
  ProgramFlags program;
  program.add_to(fields);
  if (asks_for(args, {"-h", "--help"})) {
    tools::print(introduction(program) + fields.help());
    return 0;
  }
  if (asks_for(args, {"--version"})) {
    tools::print_version("mstrain");
    return 0;
  }
  if (asks_for(args, {"--print-flags"})) {
    tools::print(fields.flags().dump(1) + "\n");
    return 0;
  }
  if (asks_for(args, {"--man"})) {
    tools::print(tools::man_page(reference(program, fields)));
    return 0;
  }
  if (asks_for(args, {"--completion", "--completion=bash", "--completion=zsh"})) {
    read_flags(args, fields, program, config);
    tools::print(tools::completion(reference(program, fields), program.completion));
    return 0;
  }
  std::exception_ptr bad_configuration;  // reported once there is an endpoint, so that all ranks agree
  try {
    tools::check_instruction_set();
    read_flags(args, fields, program, config);
  } catch (...) {
    bad_configuration = std::current_exception();
  }
  std::unique_ptr<core::Transport> transport;
  if (core::launched_by_mpi()) {
    session = core::load_mpi_session(threads_that_send(config));
    transport = session->transport();
  } else {
    const std::string alone = core::explain_lonely_task();
    if (!alone.empty()) throw core::Error(core::ErrorCode::kInvalidArgument, alone);
    transport = std::make_unique<core::SingleTransport>();
  }
  const int rank = transport->rank();
  core::set_log_rank(rank, false);
  try {
    if (!bad_configuration) read_what_flags_name(fields, config, rank == 0);
  } catch (...) {
    bad_configuration = std::current_exception();
  }
  core::trace::Recorder recorder;
  core::Endpoint endpoint(
      std::move(transport),
      {.timeout_s = config.parallel.distributed_timeout_minutes * 60, .recorder = &recorder, .flight = &flight});
  core::Communicator world = train::open_group(endpoint, layout::Group::kConfiguration);
  core::collectively(world, "configuration", [&] {
    if (bad_configuration) std::rethrow_exception(bad_configuration);
    core::set_log_level(core::parse_log_level(config.logger.log_level));
  });
  core::set_log_rank(rank, config.logger.log_rank == "all");
  if (config.training.exit_signal_handler && core::parse_signal(config.training.exit_signal) != 0) {
    core::watch_termination_signal(core::parse_signal(config.training.exit_signal));
  }
  for (const std::string& notice : fields.notices()) core::log_info("mstrain", notice);
  for (const std::string& notice : program.notices) core::log_info("mstrain", notice);
  // Only rank 0 has read stdin.
  const bool gave_data = fields.given("data_path");
  config.data.data_path = nlohmann::json::parse(world.bcast_string(nlohmann::json(config.data.data_path).dump(), 0))
                              .get<std::vector<std::string>>();
  if (gave_data && config.data.data_path.empty())
    return 0;  // stdin is empty: the upstream command failed and printed why
  if (program.check_config) {
    core::collectively(world, "configuration", [&] { check_config(config, "--check-config", *program.check_config); });
    return 0;
  }
  if (program.print_plan || program.print_active_features) {
    std::string text;
    core::collectively(world, "configuration", [&] {
      text = program.print_plan ? plan(config, program, endpoint.size())
                                : active_features(config, program, endpoint.size());
    });
    if (rank == 0) tools::print(text);
    return 0;
  }
  if (program.print_config) {
    if (rank == 0) print_config(fields, config, endpoint.size());
    return 0;
  }
  if (core::log_enabled(core::LogLevel::kDebug)) {
    std::istringstream table(fields.table());
    for (std::string setting; std::getline(table, setting);) core::log_debug("mstrain.config", setting);
  }
  const train::RankThreads threads = train::threads_of_ranks(config, world);
  core::ThreadPool pool(threads.computing);
  core::collectively(world, "configuration", [&] { train::start_progress(config, endpoint, threads); });
  if (program.benchmark) {
    refuse_to_choose(config, "--benchmark");
    const train::BenchmarkReport report = train::run_benchmark(config, endpoint, pool);
    if (report.signal != 0) return 128 + report.signal;
    if (rank == 0) tools::print(program.json ? report.json().dump(2) + "\n" : report.table());
    return 0;
  }
  train::Trainer trainer(config, endpoint, pool, &recorder,
                         {.open_source = open_source,
                          .convert_trace =
                              [](const std::filesystem::path& native, const std::string& format) {
                                const std::string stem = native.string().substr(0, native.string().rfind('.'));
                                profile::convert_file(native, stem + "." + format,
                                                      profile::parse_export_format(format));
                              },
                          .writer_command = {"/proc/self/exe", std::string(kWriterArgument)}});
  const train::RunSummary summary = trainer.run();
  if (rank == 0 && !summary.generated.empty()) tools::print(summary.generated + "\n");
  if (rank == 0 && !summary.checkpoint.empty()) tools::print(summary.checkpoint + "\n");
  if (summary.signal != 0) {
    core::log_warning("mstrain", core::cat("ended by signal ", summary.signal, "; nothing is torn"));
    return 128 + summary.signal;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ms;
  // Internal: how --ckpt-writer process starts its writer.
  if (argc > 1 && std::string_view(argv[1]) == kWriterArgument)
    return ckpt::run_writer_process({argv + 2, argv + argc});
  const core::SignalStack signal_stack;
  core::install_termination_handlers();
  core::count_signal(SIGUSR2);  // it requests a trace, unless it is --exit-signal
  core::flush_denormals_in_this_thread();
  std::unique_ptr<core::RankSession> session;
  core::FlightRecorder flight;  // destroyed first: it is complete before MPI ends
  return tools::run_guarded(
      "mstrain", [&] { return run(tools::arguments(argc, argv), session, flight); },
      [&](int exit_code) {
        if (session) session->abort(exit_code);
      },
      [&](std::string_view text) { return flight.claim_report(text); });
}
