// The driver of all rivals: it runs a file of operations through an allocator, and reads the clock as
// bench/rivals/ours.ts does. Usage: PROGRAM FILE PASSES DEVICE [TIMINGS], see there.
//
// An allocator has
//   void *allocate(size_t bytes, size_t stream)
//   void release(void *pointer, size_t stream)
//   void synchronize()                 after each pass
//   double peakReservedBytes()         since its construction
//   void atPeakLive()                  in runs that measure memory, when the most bytes are live
// Failures are exceptions.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

/** Calls of the driver or the runtime so far, by function. */
inline std::map<std::string, uint64_t> &driverCalls() {
  static std::map<std::string, uint64_t> calls;
  return calls;
}

/** The file's format is in bench/rivals/operations.ts. */
struct Operations {
  struct Operation {
    uint32_t buffer;
    uint32_t stream;
    size_t bytes;
  };
  size_t streams = 0;
  size_t buffers = 0;
  /** ends of parts, and the end of the pass */
  std::vector<size_t> ends;
  std::vector<Operation> list;
  /** how many operations lead to the most live bytes */
  size_t peak = 0;

  explicit Operations(const std::string &path) {
    constexpr double FORMAT = 180001;
    constexpr size_t HEADER = 5, FIELDS = 3;
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::vector<double> numbers(file ? static_cast<size_t>(file.tellg()) / sizeof(double) : 0);
    file.seekg(0);
    file.read(reinterpret_cast<char *>(numbers.data()), static_cast<std::streamsize>(numbers.size() * sizeof(double)));
    const bool hasHeader = numbers.size() >= HEADER && numbers[0] == FORMAT;
    if (!hasHeader || numbers.size() != HEADER + numbers[3] + FIELDS * numbers[4]) {
      throw std::runtime_error(path + " is no file of operations, or it is cut short");
    }
    streams = static_cast<size_t>(numbers[1]);
    buffers = static_cast<size_t>(numbers[2]);
    const double *first = numbers.data() + HEADER;
    const double *operation = first + static_cast<size_t>(numbers[3]);
    for (const double *end = first; end != operation; end++) ends.push_back(static_cast<size_t>(*end));
    for (; operation != numbers.data() + numbers.size(); operation += FIELDS) {
      list.push_back({static_cast<uint32_t>(operation[0]), static_cast<uint32_t>(operation[2]),
                      static_cast<size_t>(operation[1])});
    }
    if (ends.empty() || ends.back() != list.size()) ends.push_back(list.size());
    findPeak();
  }

 private:
  void findPeak() {
    std::vector<size_t> sizes(buffers);
    size_t live = 0, most = 0;
    for (size_t index = 0; index < list.size(); index++) {
      const auto &[buffer, stream, bytes] = list[index];
      live += bytes - sizes[buffer];
      sizes[buffer] = bytes;
      if (live > most) {
        most = live;
        peak = index + 1;
      }
    }
  }
};

inline double clockNs() {
  return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

/** Nanoseconds of a reading of the clock. */
inline double clockCost() {
  constexpr int READINGS = 1000000;
  const double start = clockNs();
  double last = start;
  for (int reading = 0; reading < READINGS; reading++) last = clockNs();
  return (last - start) / READINGS;
}

template <class Allocator>
class Run {
 public:
  Run(Allocator &allocator, const Operations &operations, size_t passes, bool timed)
      : allocator(allocator), operations(operations), buffers(operations.buffers) {
    // Zeros are written now, so that no page is new when the clock runs.
    if (timed) durations.assign(passes * operations.list.size(), 0);
  }

  /** The segments of a pass as JSON. */
  std::string pass(size_t number) {
    std::string text;
    size_t from = 0;
    for (size_t end : operations.ends) {
      const auto before = driverCalls();
      double ns = 0;
      if (durations.empty()) {
        ns = plain(from, end);
      } else {
        double *pass = durations.data() + number * operations.list.size();
        const size_t probe = operations.peak > from && operations.peak <= end ? operations.peak : end;
        ns = timed(from, probe, pass);
        if (probe == operations.peak) allocator.atPeakLive();
        ns += timed(probe, end, pass);
      }
      text += (text.empty() ? "" : ",") + segment(ns, before);
      from = end;
    }
    allocator.synchronize();
    return "[" + text + "]";
  }

  std::vector<double> durations;

 private:
  void step(size_t index) {
    const auto [buffer, stream, bytes] = operations.list[index];
    if (bytes == 0) {
      allocator.release(buffers[buffer], stream);
    } else {
      buffers[buffer] = allocator.allocate(bytes, stream);
    }
  }

  double plain(size_t from, size_t to) {
    const double start = clockNs();
    for (size_t index = from; index < to; index++) step(index);
    return clockNs() - start;
  }

  double timed(size_t from, size_t to, double *pass) {
    const double start = clockNs();
    double last = start;
    for (size_t index = from; index < to; index++) {
      step(index);
      const double now = clockNs();
      pass[index] = now - last;
      last = now;
    }
    return last - start;
  }

  std::string segment(double ns, const std::map<std::string, uint64_t> &before) {
    char text[64];
    snprintf(text, sizeof text, "{\"ns\":%.0f", ns);
    std::string json = text;
    if (durations.empty()) return json + ",\"peakReservedBytes\":null,\"driverCalls\":null}";
    const double reserved = allocator.peakReservedBytes();
    snprintf(text, sizeof text, ",\"peakReservedBytes\":%.0f,\"driverCalls\":{", reserved);
    json += text;
    std::string counts;
    for (const auto &[name, count] : driverCalls()) {
      const auto earlier = before.find(name);
      const uint64_t more = count - (earlier == before.end() ? 0 : earlier->second);
      if (more > 0) counts += (counts.empty() ? "\"" : ",\"") + name + "\":" + std::to_string(more);
    }
    return json + counts + "}}";
  }

  Allocator &allocator;
  const Operations &operations;
  std::vector<void *> buffers;
};

/** The `main` of a rival, which makes its allocator by Allocator(device, streams). */
template <class Allocator>
int rivalMain(int count, char **arguments) try {
  if (count < 4) throw std::runtime_error("usage: FILE PASSES DEVICE [TIMINGS]");
  const Operations operations(arguments[1]);
  const size_t passes = std::stoul(arguments[2]);
  Allocator allocator(std::atoi(arguments[3]), operations.streams);
  Run<Allocator> run(allocator, operations, passes, count > 4);
  std::string text;
  for (size_t pass = 0; pass < passes; pass++) text += (pass == 0 ? "" : ",") + run.pass(pass);
  if (count > 4) {
    std::ofstream file(arguments[4], std::ios::binary);
    file.write(reinterpret_cast<const char *>(run.durations.data()),
               static_cast<std::streamsize>(run.durations.size() * sizeof(double)));
    if (!file.flush()) throw std::runtime_error(std::string("cannot write ") + arguments[4]);
  }
  printf("{\"clockNs\":%.2f,\"passes\":[%s]}\n", clockCost(), text.c_str());
  fflush(stdout);
  // Without destructors: the allocators' own would free gigabytes, and some run after the driver's.
  std::_Exit(0);
} catch (const std::exception &error) {
  const std::string message = error.what();
  fprintf(stderr, "error: %s\n", message.substr(0, message.find('\n')).c_str());
  return 1;
}
