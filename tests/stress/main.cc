// SPDX-License-Identifier: Apache-2.0
// reprise_stress: a server over a tiny model, sessions that behave, and clients that do not, each a
// process of its own on the server's unix socket. Fails when a session that behaves gets a wrong
// token, an error or a long wait, when anything is left behind, or when memory grows.
//
//   build/cuda/tests/stress/reprise_stress --seconds 600
//   build/cuda/tests/stress/reprise_stress --attacks resets --no-limits
//
// With --ownership instead: clients that are harmed, beside a model of who owns which block
// (ownership.h).
//
//   build/cuda/tests/stress/reprise_stress --ownership --seconds 600
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.pb.h"
#include "tests/service/served_model.h"
#include "tests/stress/attacks.h"
#include "tests/stress/ownership.h"
#include "tests/stress/ownership_client.h"
#include "tests/stress/ownership_model.h"
#include "tests/stress/process.h"
#include "tests/stress/victims.h"

namespace reprise::stress {
namespace {

struct Options {
  std::optional<int> seconds;
  int quiet_seconds = 3;
  int victims = 3;
  std::vector<std::string> attacks;
  bool no_limits = false;
  double max_wait_ms = 5000;
  double max_growth_mib = 512;
  bool ownership = false;
  OwnershipOptions harmed;
  std::string attack;   // of this process
  std::string address;  // of the server, for it
  std::optional<uint32_t> ownership_client;
  std::string model_file;  // for it
};
Options options;

// Memory of this process that is in RAM, in MiB.
double ResidentMiB() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// One attack in a process of its own.
class Attacker {
 public:
  Attacker(const std::string& attack, const std::string& address)
      : attack_(attack), process_({"--attack", attack, "--address", address}) {}
  ~Attacker() {
    if (!process_.Kill()) ADD_FAILURE() << "the attack " << attack_ << " ended by itself";
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

 private:
  const std::string attack_;
  Process process_;
};

service::ServedModel::Options ServerOptions() {
  service::ServedModel::Options served;
  // Room for everybody, so that a refusal is an error.
  served.server.session_limits = {.max_rows = 1, .max_blocks = 16};
  served.server.report = [](const std::string& text) { std::printf("  %s\n", text.c_str()); };
  if (options.no_limits) {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    constexpr service::Rate kNone = {.per_second = kAny, .burst = kAny};
    served.server.connections.accepts_per_peer = kNone;
    served.server.connections.calls_per_peer = kNone;
    served.server.connections.resets_per_peer = kNone;
    served.server.connections.frames = {.call = kNone,
                                        .reset = kNone,
                                        .ping = kNone,
                                        .settings = kNone,
                                        .other = kNone,
                                        .max_header_bytes = ~uint64_t{0},
                                        .max_unfinished_bytes = ~uint64_t{0},
                                        .max_calls_before_settings = ~uint32_t{0}};
  }
  return served;
}

void Print(const char* when, const Latency& latency) {
  std::printf("%-14s %8zu steps   p50 %8.3f ms   p99 %8.3f ms   longest %8.1f ms   %6.0f MiB\n",
              when, latency.steps, latency.p50, latency.p99, latency.max, ResidentMiB());
  std::fflush(stdout);
}

TEST(Stress, SessionsThatBehaveStayRight) {
  const int seconds = options.seconds.value_or(60);
  service::ServedModel served(ServerOptions());
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  {
    Victims victims(served, options.victims);
    victims.Start();
    std::this_thread::sleep_for(std::chrono::seconds(options.quiet_seconds));
    Print("quiet", victims.TakeLatency());
    const double before = ResidentMiB();
    {
      std::vector<std::unique_ptr<Attacker>> attackers;
      for (const std::string& attack : options.attacks) {
        attackers.push_back(std::make_unique<Attacker>(attack, served.address()));
      }
      const int interval = std::max(1, std::min(10, seconds / 3));
      for (int second = 0; second < seconds; second += interval) {
        std::this_thread::sleep_for(std::chrono::seconds(interval));
        const Latency latency = victims.TakeLatency();
        Print("under attack", latency);
        EXPECT_EQ(victims.Failure(), "");
        EXPECT_GT(latency.steps, 0u);
        EXPECT_LT(latency.max, options.max_wait_ms);
      }
    }
    EXPECT_LT(ResidentMiB() - before, options.max_growth_mib) << "MiB more than before the attacks";
    victims.TakeLatency();
    std::this_thread::sleep_for(std::chrono::seconds(options.quiet_seconds));
    Print("quiet again", victims.TakeLatency());
    EXPECT_EQ(service::CheckHealth(served.NewChannel()),
              grpc::health::v1::HealthCheckResponse::SERVING);
    victims.Stop();
    EXPECT_EQ(victims.Failure(), "");
  }
  EXPECT_TRUE(service::Eventually([&] {
    return served.engine().pool().free_blocks == free_blocks;
  })) << served.engine().pool().free_blocks
      << " of " << free_blocks << " blocks are free";
  EXPECT_TRUE(served.server().Drain());
}

TEST(Ownership, EveryBlockHasTheOwnerThatItsClientKnows) {
  options.harmed.seconds = options.seconds.value_or(options.harmed.seconds);
  RunOwnership(options.harmed);
}

int RunAttack() {
  for (const Attack& attack : Attacks()) {
    if (attack.name != options.attack) continue;
    const std::string had = attack.run(options.address);
    std::fprintf(stderr, "the attack %s had what it must not have: %s\n", options.attack.c_str(),
                 had.c_str());
    return 1;
  }
  return 2;
}

// In a process that the run has started; not longer than that, however it ends.
int RunClient() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!options.ownership_client.has_value()) return RunAttack();
  // A client that rests answers the server's PING frames in time: nobody but gRPC's own timer looks
  // at its connection then, every 5 s unless told otherwise.
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "200", /*overwrite=*/1);
  const std::unique_ptr<OwnershipModel> model = OwnershipModel::Map(options.model_file);
  RunOwnershipClient(*model, options.address, *options.ownership_client, options.harmed.seed);
  return 0;
}

}  // namespace
}  // namespace reprise::stress

int main(int argc, char** argv) {
  using reprise::stress::options;
  ::testing::InitGoogleTest(&argc, argv);
  CLI::App app("Sessions that behave beside clients that do not.");
  std::string attacks;
  for (const auto& attack : reprise::stress::Attacks()) {
    options.attacks.emplace_back(attack.name);
    absl::StrAppend(&attacks, "\n  ", std::string(attack.name), ": ", std::string(attack.what));
  }
  app.footer(absl::StrCat("Attacks:", attacks));
  app.add_option("--seconds", options.seconds, "How long to attack")
      ->envname("REPRISE_STRESS_SECONDS")
      ->check(CLI::Range(1, 86400))
      ->default_str("60, or 10 with --ownership");
  app.add_option("--victims", options.victims, "Sessions that behave")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  app.add_option("--attacks", options.attacks, "Which, as a,b,c; all unless given")->delimiter(',');
  app.add_option("--max-wait", options.max_wait_ms, "Longest step, in milliseconds, that passes")
      ->capture_default_str();
  app.add_option("--max-growth", options.max_growth_mib, "Growth of memory, in MiB, that passes")
      ->capture_default_str();
  app.add_flag("--no-limits", options.no_limits,
               "Without limits of frames and new connections: for comparison");
  app.add_flag("--ownership", options.ownership,
               "Clients that are killed, frozen, slow, cancelled, resumed and that steal, beside a "
               "model of who owns which block");
  app.add_option("--clients", options.harmed.clients, "Of --ownership")
      ->check(CLI::Range(1u, reprise::stress::kMaxSlots))
      ->capture_default_str();
  app.add_option("--seed", options.harmed.seed, "Of what --ownership does")->capture_default_str();
  app.add_option("--attack", options.attack)->group("");
  app.add_option("--address", options.address)->group("");
  app.add_option("--ownership-client", options.ownership_client)->group("");
  app.add_option("--model-file", options.model_file)->group("");
  CLI11_PARSE(app, argc, argv);
  if (!options.address.empty()) return reprise::stress::RunClient();
  ::testing::GTEST_FLAG(filter) = options.ownership ? "Ownership.*" : "Stress.*";
  return RUN_ALL_TESTS();
}
