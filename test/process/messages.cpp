// Messages between two ranks.
// usage: tutti-run -n N messages CASE
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "process/rank.h"

using namespace rank_test;

namespace {

using Data = std::vector<int32_t>;

Data data_of(int sender, std::size_t count) {
    Data data(count);
    for (std::size_t i = 0; i < count; ++i)
        data[i] = sender * 1'000'000 + static_cast<int32_t>(i % 999'983);
    return data;
}
void send(tutti_comm* comm, const Data& data, int to, int tag) {
    need(tutti_send(comm, data.data(), data.size(), TUTTI_INT32, to, tag), "send");
}
Data receive(tutti_comm* comm, std::size_t count, int from, int tag,
             tutti_recv_status* status = nullptr) {
    Data data(count, -1);
    need(tutti_recv(comm, data.data(), count, TUTTI_INT32, from, tag, status), "recv");
    return data;
}

// Around the eager limit (32 KiB) and the cells of shared memory (128 KiB) and TCP (256 KiB).
constexpr std::size_t counts[] = {0,     1,     2,     7,     1000,  8191,    8192,    8193,
                                  32767, 32768, 32769, 65536, 65537, 100'000, 131'073, 1'000'003};

void sizes(tutti_comm* comm) {
    const int next = (rank_of + 1) % ranks, before = (rank_of + ranks - 1) % ranks;
    for (std::size_t count : counts) {
        // Every second rank sends first, so that nobody relies on buffering.
        tutti_recv_status status{};
        Data got;
        if (rank_of % 2 == 0) send(comm, data_of(rank_of, count), next, 5);
        got = receive(comm, count + 3, before, 5, &status);
        if (rank_of % 2 == 1) send(comm, data_of(rank_of, count), next, 5);
        require(status.source == before && status.tag == 5 && status.count == count, "the status");
        Data want = data_of(before, count);
        want.resize(count + 3, -1);
        require(got == want, "the data, " + std::to_string(count) + " elements");
    }
}

void tags(tutti_comm* comm) {
    if (rank_of == 0) {
        for (int i = 0; i < 300; ++i) send(comm, data_of(i, i % 10 == 9 ? 20'000 : 3), 1, i % 3);
        send(comm, data_of(7, 10), 1, 99);
    } else if (rank_of == 1) {
        // Large ones are announced only, so the last one is not behind them if they are received.
        std::vector<Data> large(300);
        std::vector<tutti_request*> requests;
        for (int i = 0; i < 300; ++i) {
            if (i % 10 != 9) continue;
            large[static_cast<std::size_t>(i)].resize(20'000);
        }
        // Tag 2, then 1, then 0; within a tag in the order of the sends.
        for (int tag : {2, 1, 0})
            for (int i = tag; i < 300; i += 3) {
                Data& data = large[static_cast<std::size_t>(i)];
                if (data.empty()) data.resize(3);
                tutti_request* request = nullptr;
                need(tutti_irecv(comm, data.data(), data.size(), TUTTI_INT32, 0, tag, nullptr,
                                 nullptr, &request),
                     "irecv");
                requests.push_back(request);
            }
        require(receive(comm, 10, 0, 99) == data_of(7, 10), "the one that overtakes");
        for (tutti_request*& request : requests) need(tutti_wait(&request, -1), "wait");
        for (int i = 0; i < 300; ++i)
            require(large[static_cast<std::size_t>(i)] == data_of(i, i % 10 == 9 ? 20'000 : 3),
                    "message " + std::to_string(i));
    }
}

void any(tutti_comm* comm) {
    if (rank_of == 0) {
        std::vector<int> seen(static_cast<std::size_t>(ranks));
        for (int i = 0; i < 20 * (ranks - 1); ++i) {
            tutti_recv_status status{};
            const Data got = receive(comm, 40'000, TUTTI_ANY_SOURCE, 1, &status);
            const int turn = seen[static_cast<std::size_t>(status.source)]++;
            const std::size_t count = turn % 2 == 0 ? 10 : 40'000;
            require(status.count == count, "the size of turn " + std::to_string(turn));
            Data want = data_of(status.source * 20 + turn, count);
            want.resize(40'000, -1);
            require(got == want, "the data");
        }
        for (int r = 1; r < ranks; ++r)
            require(seen[static_cast<std::size_t>(r)] == 20, "all of rank " + std::to_string(r));
    } else {
        for (int turn = 0; turn < 20; ++turn)
            send(comm, data_of(rank_of * 20 + turn, turn % 2 == 0 ? 10 : 40'000), 0, 1);
    }
}

// The program waits on the request's descriptor, outside tutti: the service thread does the work.
void unserved(tutti_comm* world) {
    for (int round = 0; round < 5; ++round) {
        tutti_comm* comm = nullptr;
        need(tutti_comm_split(world, 0, rank_of, &comm), "split");
        const int next = (rank_of + 1) % ranks, before = (rank_of + ranks - 1) % ranks;
        const Data mine = data_of(rank_of, 40'000);
        Data got(40'000);
        tutti_request *in = nullptr, *out = nullptr;
        need(tutti_irecv(comm, got.data(), got.size(), TUTTI_INT32, TUTTI_ANY_SOURCE, 1, nullptr,
                         nullptr, &in),
             "irecv");
        // Rank 0 sends last: it has no channel to the rank that it receives from.
        if (rank_of > 0)
            need(tutti_isend(comm, mine.data(), mine.size(), TUTTI_INT32, next, 1, nullptr, &out),
                 "isend");
        pollfd done{.fd = -1, .events = POLLIN, .revents = 0};
        need(tutti_request_fd(in, &done.fd), "request_fd");
        if (rank_of == 0) require(::poll(&done, 1, 10'000) == 1, "it came while nobody waited");
        if (rank_of == 0)
            need(tutti_isend(comm, mine.data(), mine.size(), TUTTI_INT32, next, 1, nullptr, &out),
                 "isend");
        require(::poll(&done, 1, 10'000) == 1, "it came while nobody waited");
        need(tutti_wait(&in, -1), "wait for what came");
        need(tutti_wait(&out, -1), "wait for what went");
        require(got == data_of(before, 40'000), "the data");
        need(tutti_comm_destroy(comm), "destroy");
    }
}

// The same with a program that serves tutti by itself.
void manual(tutti_comm* comm) {
    int fd = -1;
    need(tutti_progress_fd(comm, &fd), "progress_fd");
    Data data = data_of(1, 40'000);
    tutti_request* request = nullptr;
    if (rank_of == 0) {
        need(tutti_irecv(comm, data.data(), data.size(), TUTTI_INT32, TUTTI_ANY_SOURCE, 1, nullptr,
                         nullptr, &request),
             "irecv");
    } else if (rank_of == 1) {
        need(tutti_isend(comm, data.data(), data.size(), TUTTI_INT32, 0, 1, nullptr, &request),
             "isend");
    }
    while (request && tutti_test(&request) == TUTTI_IN_PROGRESS) {
        pollfd event{.fd = fd, .events = POLLIN, .revents = 0};
        ::poll(&event, 1, 10);
        need(tutti_progress(comm), "progress");
    }
    require(data == data_of(1, 40'000), "the data");
}

void self(tutti_comm* comm) {
    send(comm, data_of(1, 100'000), rank_of, 3);
    require(receive(comm, 100'000, rank_of, 3) == data_of(1, 100'000), "from itself");
    Data got(5);
    tutti_request* request = nullptr;
    need(tutti_irecv(comm, got.data(), 5, TUTTI_INT32, TUTTI_ANY_SOURCE, 4, nullptr, nullptr,
                     &request),
         "irecv");
    send(comm, data_of(2, 5), rank_of, 4);
    need(tutti_wait(&request, -1), "wait");
    require(got == data_of(2, 5), "from itself, received first");
}

// More than a rank keeps of what it sent to itself: the rest waits for its receives.
void self_later(tutti_comm* comm) {
    constexpr int messages = 12;
    const Data mine = data_of(1, 5000);
    std::vector<Data> got(messages, Data(5000));
    need(tutti_group_start(comm), "group start");
    for (int i = 0; i < messages; ++i)
        need(tutti_send(comm, mine.data() + i, mine.size() - static_cast<std::size_t>(i),
                        TUTTI_INT32, rank_of, i % 2),
             "send in a group");
    for (int tag : {1, 0})
        for (int i = tag; i < messages; i += 2)
            need(tutti_recv(comm, got[static_cast<std::size_t>(i)].data(), mine.size(), TUTTI_INT32,
                            rank_of, tag, nullptr),
                 "recv in a group");
    need(tutti_group_end(comm), "group end");
    for (int i = 0; i < messages; ++i) {
        Data want(mine.begin() + i, mine.end());
        want.resize(mine.size());
        require(got[static_cast<std::size_t>(i)] == want, "message " + std::to_string(i));
    }
}

void exchange(tutti_comm* comm) {
    const int next = (rank_of + 1) % ranks, before = (rank_of + ranks - 1) % ranks;
    for (std::size_t count : {1ul, 5000ul, 300'000ul}) {
        const Data mine = data_of(rank_of, count);
        Data got(count);
        tutti_recv_status status{};
        need(tutti_sendrecv(comm, mine.data(), count, next, 1, got.data(), count, before, 1,
                            TUTTI_INT32, &status),
             "sendrecv");
        require(got == data_of(before, count) && status.count == count, "what came round");

        // Everything to everyone in one group: in any order, as no sequence of sends could be.
        std::vector<Data> in(static_cast<std::size_t>(ranks), Data(count));
        need(tutti_group_start(comm), "group start");
        for (int r = 0; r < ranks; ++r) {
            need(tutti_send(comm, mine.data(), count, TUTTI_INT32, r, 2), "send in a group");
            need(tutti_recv(comm, in[static_cast<std::size_t>(r)].data(), count, TUTTI_INT32, r, 2,
                            nullptr),
                 "recv in a group");
        }
        need(tutti_group_end(comm), "group end");
        for (int r = 0; r < ranks; ++r)
            require(in[static_cast<std::size_t>(r)] == data_of(r, count), "the group's data");
    }
    expect_error(tutti_group_end(comm), TUTTI_ERR_INVALID, "no group is open");
}

void many(tutti_comm* comm) {
    constexpr int each = 200;
    std::vector<Data> out, in;
    std::vector<tutti_request*> requests;
    for (int r = 0; r < ranks; ++r)
        for (int i = 0; i < each; ++i) {
            if (r == rank_of) continue;
            out.push_back(data_of(rank_of + i, static_cast<std::size_t>(i % 7) * 3000));
            in.emplace_back(static_cast<std::size_t>(i % 7) * 3000);
        }
    std::size_t at = 0;
    for (int r = 0; r < ranks; ++r)
        for (int i = 0; i < each; ++i) {
            if (r == rank_of) continue;
            requests.resize(requests.size() + 2);
            need(tutti_isend(comm, out[at].data(), out[at].size(), TUTTI_INT32, r, i, nullptr,
                             &requests[requests.size() - 2]),
                 "isend");
            need(tutti_irecv(comm, in[at].data(), in[at].size(), TUTTI_INT32, r, i, nullptr,
                             nullptr, &requests.back()),
                 "irecv");
            ++at;
        }
    for (std::size_t i = requests.size(); i-- > 0;) need(tutti_wait(&requests[i], -1), "wait");
    at = 0;
    for (int r = 0; r < ranks; ++r)
        for (int i = 0; i < each; ++i)
            if (r != rank_of)
                require(in[at++] == data_of(r + i, static_cast<std::size_t>(i % 7) * 3000), "data");
}

void wrong(tutti_comm* comm) {
    float x[4]{};
    Data small(10);
    for (std::size_t count : {20ul, 50'000ul}) {
        const bool large = count > 8192;
        const Data mine = data_of(rank_of, count);
        if (rank_of == 0) {
            tutti_status status = tutti_send(comm, mine.data(), count, TUTTI_INT32, 1, 1);
            if (large)
                expect_error(status, TUTTI_ERR_INVALID, "rank 1 could not take 200000 bytes");
            else
                need(status, "send");
            status = tutti_send(comm, mine.data(), count, TUTTI_INT32, 1, 2);
            if (!large) need(status, "send");
        } else {
            expect_error(tutti_recv(comm, small.data(), 10, TUTTI_INT32, 0, 1, nullptr),
                         TUTTI_ERR_INVALID, "the buffer of rank 1 has 40 bytes");
            expect_error(tutti_recv(comm, x, 4, TUTTI_FLOAT32, 0, 2, nullptr), TUTTI_ERR_MISMATCH,
                         "rank 0 sent int32 with tag 2, but rank 1 receives float32");
        }
    }
    expect_error(tutti_send(comm, x, 1, TUTTI_FLOAT32, ranks, 0), TUTTI_ERR_INVALID,
                 "rank 2 is out of range. What to do: give a rank from 0 to 1");
    expect_error(tutti_send(comm, x, 1, TUTTI_FLOAT32, TUTTI_ANY_SOURCE, 0), TUTTI_ERR_INVALID,
                 "out of range");
    expect_error(tutti_recv(comm, x, 1, TUTTI_FLOAT32, 0, -5, nullptr), TUTTI_ERR_INVALID,
                 "tag -5 is negative");
    expect_error(tutti_recv(comm, nullptr, 1, TUTTI_FLOAT32, 0, 0, nullptr), TUTTI_ERR_INVALID,
                 "the buffer is NULL");
    expect_error(tutti_send(comm, x, 1, 77, 0, 0), TUTTI_ERR_INVALID, "unknown dtype 77");
    // Neither half has begun.
    need(tutti_group_start(comm), "group start");
    expect_error(tutti_sendrecv(comm, x, 1, 99, 5, x, 1, 1 - rank_of, 5, TUTTI_INT32, nullptr),
                 TUTTI_ERR_INVALID, "rank 99 is out of range");
    need(tutti_group_end(comm), "group end");
    // The communicator works on.
    if (rank_of == 0) send(comm, small, 1, 3);
    if (rank_of == 1) require(receive(comm, 10, 0, 3) == small, "after all that");
}

// More small messages than the receiver keeps: the rest waits with the sender, and nothing is lost.
void unexpected(tutti_comm* comm, std::size_t count, int messages) {
    std::vector<tutti_request*> requests(static_cast<std::size_t>(messages));
    const Data mine = data_of(0, count);
    int32_t one = 0;
    tutti_comm* beside = nullptr;  // its channels are not full
    need(tutti_comm_dup(comm, &beside), "dup");
    if (rank_of == 0) {
        for (tutti_request*& request : requests)
            need(tutti_isend(comm, mine.data(), mine.size(), TUTTI_INT32, 1, 1, nullptr, &request),
                 "isend");
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        require(tutti_test(&requests.back()) == TUTTI_IN_PROGRESS, "the last one waits");
        need(tutti_barrier(beside), "rank 1 may receive");
        for (tutti_request*& request : requests) need(tutti_wait(&request, -1), "wait");
    } else {
        Data never(1);
        tutti_request* other = nullptr;
        need(tutti_irecv(comm, never.data(), 1, TUTTI_INT32, 0, 2, nullptr, nullptr, &other),
             "irecv");
        for (int i = 0; i < 1000 && tutti_test(&other) == TUTTI_IN_PROGRESS; ++i)
            std::this_thread::sleep_for(std::chrono::microseconds(500));
        need(tutti_barrier(beside), "rank 1 may receive");
        for (int i = 0; i < messages; ++i)
            require(receive(comm, count, 0, 1) == mine, "message " + std::to_string(i));
        need(tutti_wait(&other, -1), "the other one");
    }
    if (rank_of == 0)
        require(tutti_send(comm, &one, 1, TUTTI_INT32, 1, 2) == TUTTI_OK, "the other one");
    need(tutti_comm_destroy(beside), "destroy");
}
void unexpected(tutti_comm* comm) {
    unexpected(comm, 1000, 100);
}
void unexpected_empty(tutti_comm* comm) {
    unexpected(comm, 0, 4000);
}

// One rank's unexpected messages do not stop what is wanted of another, behind one that is not.
void flooded(tutti_comm* comm) {
    constexpr int messages = 60;
    const Data mine = data_of(rank_of, 1000);
    if (rank_of == 0) {
        Data never(1);
        tutti_request* other = nullptr;
        need(tutti_irecv(comm, never.data(), 1, TUTTI_INT32, TUTTI_ANY_SOURCE, 3, nullptr, nullptr,
                         &other),
             "irecv");
        require(receive(comm, 1, 2, 2) == Data(1, 2'000'000), "what is wanted");
        for (int i = 0; i < messages; ++i)
            require(receive(comm, 1000, 1, 1) == data_of(1, 1000), "message " + std::to_string(i));
        require(receive(comm, 1000, 2, 1) == data_of(2, 1000), "the one before");
        need(tutti_wait(&other, -1), "the last one");
    } else if (rank_of == 1) {
        for (int i = 0; i < messages; ++i) send(comm, mine, 0, 1);
        send(comm, Data(1), 0, 3);
    } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        send(comm, mine, 0, 1);
        send(comm, Data(1, 2'000'000), 0, 2);
    }
}

void beside(tutti_comm* world) {
    tutti_comm* part = nullptr;
    need(tutti_comm_split(world, rank_of / 2, -rank_of, &part), "split");
    const int peer = 1 - tutti_comm_rank(part);
    for (int i = 0; i < 50; ++i) {
        Data x(1000, 1), got(20'000);
        tutti_request *sum = nullptr, *in = nullptr;
        need(tutti_irecv(part, got.data(), got.size(), TUTTI_INT32, peer, i, nullptr, nullptr, &in),
             "irecv");
        need(tutti_iallreduce(world, x.data(), x.data(), x.size(), TUTTI_INT32, TUTTI_SUM, nullptr,
                              &sum),
             "iallreduce");
        send(part, data_of(rank_of, 20'000), peer, i);
        need(tutti_wait(&in, -1), "wait for the message");
        need(tutti_wait(&sum, -1), "wait for the sum");
        require(x[999] == ranks, "the sum");
        require(got == data_of(rank_of ^ 1, 20'000), "the message");
    }
    need(tutti_comm_destroy(part), "destroy");
}

void deadline(tutti_comm* comm) {
    Data x(10);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.timeout_ms = 1000;
    tutti_request* request = nullptr;
    if (rank_of == 0) {
        need(tutti_irecv(comm, x.data(), 10, TUTTI_INT32, 1, 8, nullptr, &opts, &request), "irecv");
        expect_error(tutti_wait(&request, -1), TUTTI_ERR_TIMEOUT,
                     "receive of 40 bytes with tag 8 from rank 1");
    } else
        expect_error(tutti_send(comm, data_of(0, 100'000).data(), 100'000, TUTTI_INT32, 0, 9),
                     TUTTI_ERR_TIMEOUT, "timed out after 1000 ms");
}

void left(tutti_comm* comm) {
    Data x(10);
    if (rank_of == 0) {
        send(comm, data_of(3, 10), 1, 1);
        return;
    }
    if (rank_of > 1) return;
    require(receive(comm, 10, 0, 1) == data_of(3, 10), "what it had sent before");
    expect_error(tutti_recv(comm, x.data(), 10, TUTTI_INT32, 0, 1, nullptr), TUTTI_ERR_PEER_LOST,
                 "rank 0 has left");
    require(tutti_last_error_rank() == 0, "the rank at fault");
}

// A receive from any rank fails when the sender that it has found leaves, though others stay.
void left_announced(tutti_comm* comm) {
    static tutti_request* never_waited_for = nullptr;
    static Data large(1'000'000);
    Data x(large.size());
    if (rank_of == 1) {
        need(tutti_isend(comm, large.data(), large.size(), TUTTI_INT32, 0, 7, nullptr,
                         &never_waited_for),
             "isend");
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    } else if (rank_of == 0) {
        // Rank 1 sends no such message, so this ends when it has left.
        expect_error(tutti_recv(comm, x.data(), 1, TUTTI_INT32, 1, 8, nullptr), TUTTI_ERR_PEER_LOST,
                     "rank 1 has left");
        expect_error(
            tutti_recv(comm, x.data(), x.size(), TUTTI_INT32, TUTTI_ANY_SOURCE, 7, nullptr),
            TUTTI_ERR_PEER_LOST, "rank 1 has left");
        require(tutti_last_error_rank() == 1, "the rank at fault");
        send(comm, data_of(0, 1), 2, 9);
    } else {
        require(receive(comm, 1, 0, 9) == data_of(0, 1), "those who stay go on");
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int code = run_case(argc, argv,
                              {{"sizes", sizes},
                               {"tags", tags},
                               {"any", any},
                               {"unserved", unserved},
                               {"manual", manual},
                               {"self", self},
                               {"self_later", self_later},
                               {"exchange", exchange},
                               {"many", many},
                               {"wrong", wrong},
                               {"unexpected", unexpected},
                               {"flooded", flooded},
                               {"beside", beside},
                               {"deadline", deadline},
                               {"left", left},
                               {"left_announced", left_announced},
                               {"unexpected_empty", unexpected_empty}});
    if (code == 0) std::printf("right\n");
    return code;
}
