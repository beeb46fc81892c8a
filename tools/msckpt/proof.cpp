#include "tools/msckpt/proof.h"

#include "ckpt/prove_report.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::tools::msckpt {

using core::cat;

void log_proof(const std::string& path, const ckpt::ProofReport& report) {
  for (const ckpt::Fault& fault : report.faults) core::log_error("msckpt.prove", ckpt::fault_text(fault));
  for (const std::string& line : report.summary) core::log_error("msckpt.prove", line);
  for (const std::string& line : ckpt::statistics_lines(report)) core::log_info("msckpt.prove", line);
  for (const std::string& note : report.notes) core::log_warning("msckpt.prove", note);
  for (const std::string& dropped : report.dropped) core::log_info("msckpt.prove", cat("dropped: ", dropped));
  if (!report.faults.empty()) return;
  core::log_info("msckpt.prove", cat(path, ": proved: ", report.tensors.size(), " tensors, ", report.elements,
                                     " elements, each equal to the source's and in exactly one place"));
}

}  // namespace ms::tools::msckpt
