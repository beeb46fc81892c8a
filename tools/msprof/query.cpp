#include "tools/msprof/query.h"

#include <iostream>

#include "core/path_list.h"
#include "profile/query/sql.h"
#include "tools/msprof/rows.h"

namespace ms::tools::msprof {
namespace {

class QueryVerb final : public Verb {
 public:
  const char* name() const override { return "query"; }
  const char* help() const override {
    return "run an SQL query: query TRACES \"SELECT name, sum(dur) FROM events ...\"";
  }
  void add(CLI::App& verb) override {
    verb.footer(
        profile::query_tables() +
        "\nExample: msprof query traces \"SELECT name, sum(dur) FROM events WHERE class = 'COMPUTATION' GROUP BY 1\"");
    flags_.add(verb);
  }

  int run(const std::vector<std::string>& arguments) override {
    std::vector<std::string> inputs = flags_.input.inputs;
    const std::string sql = inputs.back();
    inputs.pop_back();
    return flags_.answer("query", core::expand_path_list(inputs, std::cin), sql, arguments);
  }

 private:
  RowFlags flags_;
};

}  // namespace

std::unique_ptr<Verb> query_verb() { return std::make_unique<QueryVerb>(); }

}  // namespace ms::tools::msprof
