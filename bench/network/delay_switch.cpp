// A switch between network namespaces that delays every frame. It emulates a network of distant
// hosts on a kernel without netem. It makes a TAP device in each namespace, and forwards Ethernet
// frames between these devices at the rate of a link and with a fixed delay.
//
// A frame passes its sender's link, which carries one frame at a time. Then it waits for the delay,
// and passes its receiver's link in the same way. While a sender's link is busy, the switch does
// not read from it: the frames wait in the sender's kernel, as they do for a network card. A
// receiver's link drops a frame that would wait too long, as the port of a switch does.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/command_line.h"

namespace {

constexpr std::size_t header_bytes = 14;        // two addresses and a type
constexpr std::size_t frame_bytes = 64 * 1024;  // more than any TAP device's frame
constexpr int64_t link_queue_ns = 2'000'000;  // a sender's link that is busy for longer is not read
constexpr int most_reads = 32;                // of one port, before the other ports get their turn

volatile std::sig_atomic_t stopped = 0;

void stop(int) {
    stopped = 1;
}

int64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

struct Options {
    std::vector<std::string> namespaces;
    std::string device = "far0";
    double rate_mbit = 1000;
    double delay_ms = 10;
    double queue_ms = 50;
};

struct Frame {
    int64_t due_ns = 0;
    std::size_t port = 0;  // of the receiver
    std::vector<unsigned char> bytes;
};

struct Port {
    int fd = -1;
    int64_t sends_until_ns = 0, receives_until_ns = 0;  // the two links are busy until then
    std::deque<Frame> travelling;  // sent here; the delay is fixed, so the front is due first
    std::deque<Frame> arriving;    // passing this port's receiving link
};

int fail(const char* what, const std::string& which) {
    std::fprintf(stderr, "tutti-delay-switch: %s %s: %s\n", what, which.c_str(),
                 std::strerror(errno));
    return -1;
}

/// Makes a TAP device of that name in a network namespace that `ip netns` has made. Returns its
/// descriptor, or -1 after printing the reason.
int make_tap(const std::string& name_space, const std::string& device) {
    const int own = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    const int other = ::open(("/run/netns/" + name_space).c_str(), O_RDONLY | O_CLOEXEC);
    if (other < 0 || ::setns(other, CLONE_NEWNET) != 0) return fail("cannot enter", name_space);
    const int tap = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap < 0) return fail("cannot open", "/dev/net/tun");
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    device.copy(request.ifr_name, IFNAMSIZ - 1);
    if (::ioctl(tap, TUNSETIFF, &request) != 0)
        return fail("cannot make a TAP device in", name_space);
    if (own < 0 || ::setns(own, CLONE_NEWNET) != 0) return fail("cannot leave", name_space);
    ::close(own);
    ::close(other);
    return tap;
}

class Switch {
public:
    explicit Switch(const Options& options)
        : ns_per_byte_(8000 / options.rate_mbit),
          delay_ns_(static_cast<int64_t>(options.delay_ms * 1e6)),
          queue_ns_(static_cast<int64_t>(options.queue_ms * 1e6)) {}

    bool open(const Options& options) {
        for (const std::string& name_space : options.namespaces) {
            Port port;
            port.fd = make_tap(name_space, options.device);
            if (port.fd < 0) return false;
            ports_.push_back(std::move(port));
            polled_.push_back({ports_.back().fd, POLLIN, 0});
        }
        return true;
    }

    void run() {
        while (stopped == 0) {
            const int64_t next_ns = move(now_ns());
            wait(next_ns);
            for (std::size_t i = 0; i < ports_.size(); ++i)
                if ((polled_[i].revents & POLLIN) != 0) read_from(i);
        }
    }
    uint64_t dropped() const { return dropped_; }

private:
    // An Ethernet address as a number, for learned_.
    static uint64_t address(const unsigned char* bytes) {
        uint64_t value = 0;
        std::memcpy(&value, bytes, 6);
        return value;
    }
    int64_t length_ns(const Frame& frame) const {
        return static_cast<int64_t>(static_cast<double>(frame.bytes.size()) * ns_per_byte_);
    }

    /// Moves the frames that are due; returns the time of the next one.
    int64_t move(int64_t now) {
        // Move the earliest frame first, so that a receiver's link serves its senders in turns.
        for (;;) {
            Port* earliest = nullptr;
            for (Port& port : ports_)
                if (!port.travelling.empty() &&
                    (!earliest ||
                     port.travelling.front().due_ns < earliest->travelling.front().due_ns))
                    earliest = &port;
            if (!earliest || earliest->travelling.front().due_ns > now) break;
            arrive(std::move(earliest->travelling.front()));
            earliest->travelling.pop_front();
        }
        int64_t next_ns = now + 100'000'000;
        for (Port& port : ports_) {
            while (!port.arriving.empty() && port.arriving.front().due_ns <= now) deliver(port);
            if (!port.arriving.empty()) next_ns = std::min(next_ns, port.arriving.front().due_ns);
            if (!port.travelling.empty())
                next_ns = std::min(next_ns, port.travelling.front().due_ns);
        }
        return next_ns;
    }

    void arrive(Frame frame) {
        Port& to = ports_[frame.port];
        const int64_t begins_ns = std::max(frame.due_ns, to.receives_until_ns);
        if (begins_ns - frame.due_ns > queue_ns_) return drop(std::move(frame));
        to.receives_until_ns = frame.due_ns = begins_ns + length_ns(frame);
        to.arriving.push_back(std::move(frame));
    }

    void deliver(Port& port) {
        Frame frame = std::move(port.arriving.front());
        port.arriving.pop_front();
        if (::write(port.fd, frame.bytes.data(), frame.bytes.size()) < 0) ++dropped_;
        spare_.push_back(std::move(frame.bytes));
    }

    void drop(Frame frame) {
        ++dropped_;
        spare_.push_back(std::move(frame.bytes));
    }

    void wait(int64_t next_ns) {
        const int64_t now = now_ns();
        for (std::size_t i = 0; i < ports_.size(); ++i) {
            const int64_t readable_ns = ports_[i].sends_until_ns - link_queue_ns;
            polled_[i].events = readable_ns > now ? 0 : POLLIN;
            if (readable_ns > now) next_ns = std::min(next_ns, readable_ns);
        }
        const int64_t left_ns = std::clamp<int64_t>(next_ns - now, 0, 999'999'999);
        const timespec timeout{0, static_cast<long>(left_ns)};
        if (::ppoll(polled_.data(), polled_.size(), &timeout, nullptr) < 0)
            for (pollfd& one : polled_) one.revents = 0;
    }

    void read_from(std::size_t index) {
        Port& from = ports_[index];
        for (int reads = 0; reads < most_reads; ++reads) {
            const int64_t now = now_ns();
            if (from.sends_until_ns - now > link_queue_ns) return;
            const ssize_t got = ::read(from.fd, buffer_.data(), buffer_.size());
            if (got < static_cast<ssize_t>(header_bytes)) return;
            const auto bytes = static_cast<std::size_t>(got);
            from.sends_until_ns = std::max(now, from.sends_until_ns) +
                                  static_cast<int64_t>(static_cast<double>(bytes) * ns_per_byte_);
            learned_[address(buffer_.data() + 6)] = index;
            const auto known = learned_.find(address(buffer_.data()));
            for (std::size_t to = 0; to < ports_.size(); ++to)
                if (to != index && (known == learned_.end() || known->second == to))
                    send(from, to, bytes);
        }
    }

    void send(Port& from, std::size_t to, std::size_t bytes) {
        Frame frame{from.sends_until_ns + delay_ns_, to, {}};
        if (!spare_.empty()) {
            frame.bytes = std::move(spare_.back());
            spare_.pop_back();
        }
        frame.bytes.assign(buffer_.data(), buffer_.data() + bytes);
        from.travelling.push_back(std::move(frame));
    }

    const double ns_per_byte_;
    const int64_t delay_ns_, queue_ns_;
    std::vector<Port> ports_;
    std::vector<pollfd> polled_;
    std::unordered_map<uint64_t, std::size_t> learned_;  // the port of each source address
    std::vector<std::vector<unsigned char>> spare_;
    std::vector<unsigned char> buffer_ = std::vector<unsigned char>(frame_bytes);
    uint64_t dropped_ = 0;
};

void parse(CLI::App& app, Options& options) {
    app.add_option("namespace", options.namespaces, "network namespaces, as `ip netns` names them")
        ->required();
    app.add_option("--device", options.device,
                   "name of the TAP device in each namespace (default far0)");
    app.add_option("--rate-mbit", options.rate_mbit, "rate of each link, each way (default 1000)")
        ->check(CLI::PositiveNumber);
    app.add_option("--delay-ms", options.delay_ms, "delay of every frame (default 10)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--queue-ms", options.queue_ms,
                   "longest wait before a receiver's link; a later frame is dropped (default 50)")
        ->check(CLI::NonNegativeNumber);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("tutti-delay-switch - joins network namespaces by a switch that delays each frame",
                 "tutti-delay-switch");
    Options options;
    parse(app, options);
    if (const auto code = command_line::parse(app, argc, argv, [] {})) return *code;
    std::signal(SIGTERM, stop);
    std::signal(SIGINT, stop);
    Switch far(options);
    if (!far.open(options)) return 1;
    std::puts("ready");
    std::fflush(stdout);
    far.run();
    std::fprintf(stderr, "%llu frames dropped\n", static_cast<unsigned long long>(far.dropped()));
    return 0;
}
