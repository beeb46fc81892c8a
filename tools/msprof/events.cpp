#include "tools/msprof/events.h"

#include "profile/query/sql.h"
#include "tools/msprof/rows.h"

namespace ms::tools::msprof {
namespace {

class EventsVerb final : public Verb {
 public:
  const char* name() const override { return "events"; }
  const char* help() const override { return "print events as CSV for other tools"; }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof events traces --where 'cat=kernel,name~gemm' --columns rank,name,ts,dur");
    flags_.add(verb);
    verb.add_option(
        "--where", where_,
        "Conditions joined by commas, each COLUMN, one of = != < > ~ (contains), VALUE: cat=kernel,name~nccl,dur>1000");
    verb.add_option("--columns", columns_, "Columns joined by commas: rank,name,ts,dur; msprof query --help lists all");
  }

  int run(const std::vector<std::string>& arguments) override {
    const std::string sql = profile::events_query(where_, columns_);
    return flags_.answer("events", flags_.input.paths(), sql, arguments);
  }

 private:
  RowFlags flags_;
  std::string where_, columns_;
};

}  // namespace

std::unique_ptr<Verb> events_verb() { return std::make_unique<EventsVerb>(); }

}  // namespace ms::tools::msprof
