// The style sheets and scripts of the HTML report, compiled into the program from the files beside this header.
#pragma once

#include <string_view>

namespace ms::profile::page {

extern const std::string_view kReportCss, kCommonJs, kTablesJs, kChartsJs, kViewJs, kTimelineJs, kSearchJs;

}  // namespace ms::profile::page
