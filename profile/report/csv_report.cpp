#include "profile/report/csv_report.h"

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/io/file.h"

namespace ms::profile {
namespace {

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw core::Error(core::ErrorCode::kIo, core::cat("cannot create folder ", folder, ": ", error.message()));
}

}  // namespace

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += c;
    out += c;
  }
  return out + '"';
}

std::vector<DataTable> tables_of(const Store& store, const Results& results, int64_t top) {
  std::vector<DataTable> out;
  for (const Section* section : results.sections) {
    for (const auto table : section->tables) out.push_back(table(store, results, top));
  }
  std::erase_if(out, [](const DataTable& table) { return table.empty(); });
  return out;
}

std::vector<std::string> write_csv(const Store& store, const Results& results, const std::string& folder) {
  make_folder(folder);
  std::vector<std::string> paths;
  const auto write = [&](const std::string& name, const std::string& text) {
    paths.push_back((std::filesystem::path(folder) / name).string());
    core::write_text_atomically(paths.back(), text);
  };
  for (const DataTable& table : tables_of(store, results, 0)) write(table.name() + ".csv", table.csv());
  for (const Section* section : results.sections) {
    if (section->csv_name != nullptr) write(section->csv_name, section->csv(results));
  }
  return paths;
}

std::vector<std::string> write_csv(const std::vector<DataTable>& tables, const std::string& folder) {
  make_folder(folder);
  std::vector<std::string> paths;
  for (const DataTable& table : tables) {
    paths.push_back((std::filesystem::path(folder) / (table.name() + ".csv")).string());
    core::write_text_atomically(paths.back(), table.csv());
  }
  return paths;
}

}  // namespace ms::profile
