// SPDX-License-Identifier: Apache-2.0
// `reprise top`: what a server does right now, from its metrics, once a second on a terminal.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/address.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/record.h"
#include "tools/signals.h"
#include "tools/top/http_get.h"
#include "tools/top/metrics_text.h"
#include "tools/top/top_figures.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kTopExamples[] =
    "Examples:\n"
    "  reprise top\n"
    "  reprise top --address unix:/tmp/metrics.sock --once\n"
    "  reprise top --once --json top.json\n"
    "\n"
    "The server has to be started with --metrics ADDRESS. Ctrl-C ends it. Where stdout is no "
    "terminal, it looks once.";

// For one look: a server that is busy answers in milliseconds.
constexpr milliseconds kAnswerTime(2000);
constexpr milliseconds kPoll(50);

// A screen of its own, so that what stood on the terminal is there again afterwards.
constexpr char kEnterScreen[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeaveScreen[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearBelow[] = "\x1b[J";
constexpr char kClearLine[] = "\x1b[K";

struct TopFlags {
  std::string address{kDefaultMetricsAddress};
  std::chrono::nanoseconds interval = std::chrono::seconds(1);
  bool once = false;
  std::string json;
};

absl::StatusOr<MetricsText> Look(const std::string& address) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, HttpGet(address, "/metrics", kAnswerTime));
  REPRISE_ASSIGN_OR_RETURN(MetricsText metrics, MetricsText::Parse(text));
  REPRISE_RETURN_IF_ERROR(CheckMetrics(metrics, address));
  return metrics;
}

void SleepUntil(steady_clock::time_point time, const std::atomic<bool>& interrupted) {
  while (!interrupted && steady_clock::now() < time)
    std::this_thread::sleep_for(
        std::min<steady_clock::duration>(kPoll, time - steady_clock::now()));
}

absl::Status TopOnce(const TopFlags& flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json, invocation.console));
  const steady_clock::time_point begin = steady_clock::now();
  REPRISE_ASSIGN_OR_RETURN(const MetricsText before, Look(flags.address));
  std::this_thread::sleep_until(begin + flags.interval);
  REPRISE_ASSIGN_OR_RETURN(const MetricsText now, Look(flags.address));
  const TopFigures figures = FiguresOf(before, now);
  invocation.console->Print(TopText(figures, flags.address, invocation.console->width()));
  nlohmann::json record = RecordOf("top", invocation);
  record["address"] = flags.address;
  record["figures"] = TopJson(figures);
  return WriteRecord(flags.json, record, invocation.console);
}

// Draws over what stood there, line by line, so that nothing flickers.
void Draw(const std::string& text, Console* console) {
  std::string screen = kHome;
  for (const char c : text) {
    if (c == '\n') screen += kClearLine;
    screen += c;
  }
  console->Print(absl::StrCat(screen, kClearBelow));
}

// Shows one look after another until it is asked to stop. A server that does not answer is said
// beside what was last known of it.
void ShowLooks(const TopFlags& flags, const MetricsText& first, const Interrupt& interrupt,
               Console* console) {
  MetricsText last = first;
  std::string text = absl::StrCat(flags.address, ": looking\n");
  steady_clock::time_point next = steady_clock::now();
  while (!interrupt.requested() && console->status().ok()) {
    Draw(text, console);
    next += flags.interval;
    SleepUntil(next, interrupt.requested());
    auto now = Look(flags.address);
    if (now.ok()) {
      text = TopText(FiguresOf(last, *now), flags.address, console->width());
      last = *std::move(now);
    } else {
      text = absl::StrCat(Paragraph(std::string(now.status().message()), console->width()),
                          "Asks again every ",
                          FormatDuration(static_cast<double>(flags.interval.count())), ".\n");
    }
    next = std::max(next, steady_clock::now() - flags.interval);
  }
}

absl::Status Top(const TopFlags& flags, const Invocation& invocation) {
  Interrupt interrupt;
  const bool once = flags.once || !flags.json.empty() || isatty(STDOUT_FILENO) == 0;
  if (once) return TopOnce(flags, invocation);
  // An address that is wrong from the start is an error, not a screen.
  REPRISE_ASSIGN_OR_RETURN(const MetricsText first, Look(flags.address));
  Console* console = invocation.console;
  interrupt.Arm();
  console->Print(kEnterScreen);
  ShowLooks(flags, first, interrupt, console);
  console->Print(kLeaveScreen);
  console->Print("\n");
  return interrupt.status();
}

}  // namespace

Command AddTopCommand(CLI::App* root) {
  auto flags = std::make_shared<TopFlags>();
  CLI::App* app = root->add_subcommand("top", "Show what a server does right now");
  app->footer(kTopExamples);
  AddOption(app, "--address", &flags->address, ParseAddress, "ADDRESS",
            std::string(kDefaultMetricsAddress),
            "Of the server's --metrics: HOST:PORT or unix:PATH");
  AddOption(
      app, "--interval", &flags->interval,
      [](std::string_view text) -> absl::StatusOr<std::chrono::nanoseconds> {
        REPRISE_ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, ParseDuration(text));
        if (time >= milliseconds(100) && time <= std::chrono::hours(1)) return time;
        return absl::InvalidArgumentError(
            absl::StrCat("duration: got \"", std::string(text), "\", allowed: 100ms to 1h"));
      },
      "TIME", "1s", "Between two looks");
  app->add_flag("--once", flags->once, "Look twice, an interval apart, print it, and end");
  app->add_option("--json", flags->json, "The same, with all figures as JSON too; -: to stdout")
      ->type_name("FILE");
  return {app, [flags](const Invocation& invocation) { return Top(*flags, invocation); }};
}

}  // namespace reprise::tools
