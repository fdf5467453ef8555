// SPDX-License-Identifier: Apache-2.0
// reprise.h and its library as a C11 program has them: a model's tokens, and a graph of its own
// work. Every kind of handle is made, used and destroyed.
//
//   c11_program <Hugging Face directory>
#include <reprise.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void Check(int condition, const char* what, const reprise_error* error) {
  if (condition) return;
  ++failures;
  printf("%s: %s: %s\n", what, reprise_code_name(error->code), error->message);
}

static reprise_code AddOne(void* context, reprise_error* error) {
  (void)error;
  ++*(int*)context;
  return REPRISE_OK;
}

static reprise_code Enqueue(void* context, reprise_stream* stream, int64_t capacity,
                            reprise_error* error) {
  for (int64_t i = 0; i < capacity; ++i) {
    const reprise_code code = reprise_stream_enqueue_function(stream, AddOne, context, error);
    if (code != REPRISE_OK) return code;
  }
  return REPRISE_OK;
}

static void ReplayGraphs(reprise_device* device) {
  reprise_error error;
  reprise_stream* stream = NULL;
  reprise_graph_manager* manager = NULL;
  reprise_graph_options options;
  reprise_replay_report report = {.struct_size = sizeof(report)};
  const int64_t buckets[] = {1, 4};
  int sum = 0;
  Check(!reprise_stream_create(device, &stream, &error), "stream", &error);
  Check(!reprise_graph_options_init(&options, sizeof(options), &error), "options", &error);
  options.buckets = buckets;
  options.num_buckets = 2;
  options.warm_up = 0;
  Check(!reprise_graph_manager_create(stream, &options, Enqueue, &sum, &manager, &error), "manager",
        &error);
  Check(!reprise_graph_manager_replay(manager, 3, &report, &error), "replay", &error);
  Check(!reprise_stream_synchronize(stream, &error), "synchronize", &error);
  Check(sum == 4 && report.padding == 1 && strcmp(report.graph, "graph/4") == 0, "report", &error);
  Check(reprise_graph_manager_replay(manager, 5, &report, &error) == REPRISE_OUT_OF_RANGE,
        "a size that fits no bucket", &error);
  reprise_graph_manager_destroy(manager);
  reprise_stream_destroy(stream);
}

static void RunModel(reprise_device* device, const char* directory) {
  reprise_error error;
  reprise_engine_options options;
  reprise_engine* engine = NULL;
  reprise_session* session = NULL;
  reprise_step* step = NULL;
  reprise_result* result = NULL;
  uint32_t blocks[2] = {0, 0};
  const uint32_t prompt[] = {5, 9, 2, 7};
  Check(!reprise_engine_options_init(&options, sizeof(options), &error), "options", &error);
  options.directory = directory;
  options.max_rows = 2;
  options.kv_cache_bytes = 1 << 20;
  Check(!reprise_engine_create(device, &options, &engine, &error), "engine", &error);
  Check(!reprise_session_open(engine, NULL, &session, &error), "session", &error);
  Check(!reprise_session_allocate_blocks(session, 2, blocks, &error), "blocks", &error);
  Check(!reprise_step_create(&step, &error), "step", &error);
  Check(!reprise_result_create(&result, &error), "result", &error);

  const reprise_row_add add = {
      .struct_size = sizeof(add), .row = 1, .blocks = blocks, .num_blocks = 2};
  const reprise_row_chunk chunk = {
      .struct_size = sizeof(chunk), .row = 1, .sample = 1, .tokens = prompt, .num_tokens = 4};
  Check(!reprise_step_add_row(step, &add, &error), "add", &error);
  Check(!reprise_step_run_chunk(step, &chunk, &error), "chunk", &error);
  for (uint32_t i = 0; i < 4; ++i) {
    reprise_result_view view = {.struct_size = sizeof(view)};
    Check(!reprise_session_step(session, step, result, &error), "step", &error);
    Check(!reprise_result_get(result, &view, &error), "view", &error);
    Check(view.num_rows == 1 && view.context_length[0] == 4 + i, "rows", &error);
    Check(!reprise_step_clear(step, &error), "clear", &error);
    Check(!reprise_step_continue_all(step, &error), "continue", &error);
  }
  reprise_result_destroy(result);
  reprise_step_destroy(step);
  reprise_session_destroy(session);
  reprise_engine_destroy(engine);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: c11_program <Hugging Face directory>\n");
    return 2;
  }
  reprise_error error;
  reprise_device* device = NULL;
  const reprise_device_options options = {.struct_size = sizeof(options),
                                          .kind = REPRISE_DEVICE_HOST};
  reprise_buffer* buffer = NULL;
  Check(!reprise_device_create(&options, &device, &error), "device", &error);
  Check(!reprise_buffer_create(device, REPRISE_MEMORY_MAPPED, 64, &buffer, &error), "buffer",
        &error);
  Check(reprise_buffer_bytes(buffer) == 64, "bytes", &error);
  reprise_buffer_destroy(buffer);
  ReplayGraphs(device);
  RunModel(device, argv[1]);
  reprise_device_destroy(device);
  printf("reprise %s from C11: %d failures\n", reprise_version(), failures);
  return failures == 0 ? 0 : 1;
}
