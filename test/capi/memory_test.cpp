// Memory that transports know in advance.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "tutti/tutti.hpp"

namespace {

void expect(tutti_status got, tutti_status want, const std::string& words) {
    INFO(tutti_last_error());
    REQUIRE(got == want);
    REQUIRE(std::string(tutti_last_error()).find(words) != std::string::npos);
}

}  // namespace

TEST_CASE("memory: handed out zeroed, aligned and of any size") {
    tutti::Communicator comm;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096},
                                    std::size_t{3} << 20, (std::size_t{4} << 20) + 1}) {
        void* data = nullptr;
        REQUIRE(tutti_mem_alloc(comm.get(), bytes, &data) == TUTTI_OK);
        REQUIRE(data != nullptr);
        REQUIRE(reinterpret_cast<std::uintptr_t>(data) % 4096 == 0);
        auto* begin = static_cast<unsigned char*>(data);
        for (std::size_t i = 0; i < bytes; i += 1000) REQUIRE(begin[i] == 0);
        if (bytes > 0) begin[bytes - 1] = 1;
        REQUIRE(tutti_mem_free(comm.get(), data) == TUTTI_OK);
    }
    REQUIRE(tutti_mem_free(comm.get(), nullptr) == TUTTI_OK);
}

TEST_CASE("memory: buffers of it serve operations") {
    tutti::Communicator comm;
    tutti::Memory<float> buffer = comm.allocate<float>(1000);
    REQUIRE(buffer.size() == 1000);
    for (float& x : buffer) x = 2;
    comm.allreduce(buffer, buffer);
    REQUIRE(buffer[999] == 2.0F);
    tutti::Memory<float> moved = std::move(buffer);
    REQUIRE(moved[0] == 2.0F);
    REQUIRE(buffer.size() == 0);
}

TEST_CASE("memory: stays valid after its communicator, until it is freed") {
    void* data = nullptr;
    tutti::Memory<float> buffer;
    {
        tutti::Communicator comm;
        REQUIRE(tutti_mem_alloc(comm.get(), 100, &data) == TUTTI_OK);
        buffer = comm.allocate<float>(1 << 20);
        for (float& x : buffer) x = 2;
        comm.allreduce(buffer, buffer);
    }
    static_cast<char*>(data)[99] = 1;
    buffer[0] = 3;
    REQUIRE(buffer[(1 << 20) - 1] == 2.0F);
    tutti::Communicator other;
    expect(tutti_mem_free(other.get(), data), TUTTI_ERR_INVALID,
           "a communicator that was destroyed has");
    REQUIRE(tutti_mem_free(nullptr, data) == TUTTI_OK);
    expect(tutti_mem_free(nullptr, data), TUTTI_ERR_INVALID, "has not allocated memory at");
    expect(tutti_mem_free(other.get(), data), TUTTI_ERR_INVALID, "has not allocated memory at");
}

TEST_CASE("memory: freed by its communicator, or without naming one") {
    tutti::Communicator comm, other;
    void *first = nullptr, *second = nullptr;
    REQUIRE(tutti_mem_alloc(comm.get(), 100, &first) == TUTTI_OK);
    REQUIRE(tutti_mem_alloc(comm.get(), 100, &second) == TUTTI_OK);
    expect(tutti_mem_free(other.get(), first), TUTTI_ERR_INVALID,
           "another communicator of this process has");
    expect(tutti_mem_deregister(comm.get(), first), TUTTI_ERR_INVALID, "has not registered");
    static_cast<char*>(first)[99] = 1;  // the refused calls left it as it was
    REQUIRE(tutti_mem_free(nullptr, first) == TUTTI_OK);
    REQUIRE(tutti_mem_free(comm.get(), second) == TUTTI_OK);
    expect(tutti_mem_free(comm.get(), second), TUTTI_ERR_INVALID, "has not allocated memory at");
    expect(tutti_mem_free(nullptr, second), TUTTI_ERR_INVALID, "has not allocated memory at");
    float mine = 0;
    expect(tutti_mem_free(nullptr, &mine), TUTTI_ERR_INVALID, "What to do: pass a pointer from");
}

TEST_CASE("memory: threads free it while its communicator is destroyed") {
    for (int round = 0; round < 20; ++round) {
        std::vector<void*> blocks(64);
        auto comm = std::make_unique<tutti::Communicator>();
        for (void*& block : blocks) REQUIRE(tutti_mem_alloc(comm->get(), 8192, &block) == TUTTI_OK);
        std::atomic<int> freed{0};
        std::thread frees([&] {
            for (void* block : blocks) freed += tutti_mem_free(nullptr, block) == TUTTI_OK;
        });
        comm.reset();
        frees.join();
        REQUIRE(freed == 64);
    }
}

TEST_CASE("memory: the program's own is registered once and by its beginning") {
    tutti::Communicator comm;
    std::vector<float> data(1000);
    tutti_comm* c = comm.get();
    REQUIRE(tutti_mem_register(c, data.data(), 4000, -1) == TUTTI_OK);
    expect(tutti_mem_register(c, data.data(), 400, -1), TUTTI_ERR_INVALID, "registered already");
    expect(tutti_mem_deregister(c, data.data() + 1), TUTTI_ERR_INVALID, "has not registered");
    expect(tutti_mem_free(c, data.data()), TUTTI_ERR_INVALID, "has not allocated");
    REQUIRE(tutti_mem_deregister(c, data.data()) == TUTTI_OK);
    expect(tutti_mem_deregister(c, data.data()), TUTTI_ERR_INVALID, "has not registered");
}

TEST_CASE("memory: what cannot be is refused") {
    tutti::Communicator comm;
    tutti_comm* c = comm.get();
    float x = 0;
    void* data = &x;
    expect(tutti_mem_alloc(nullptr, 1, &data), TUTTI_ERR_INVALID, "comm is NULL");
    expect(tutti_mem_alloc(c, 1, nullptr), TUTTI_ERR_INVALID, "data is NULL");
    expect(tutti_mem_alloc(c, SIZE_MAX, &data), TUTTI_ERR_NO_MEMORY, "no memory for");
    REQUIRE(data == nullptr);
    expect(tutti_mem_alloc(c, SIZE_MAX / 4, &data), TUTTI_ERR_NO_MEMORY, "no memory for");
    expect(tutti_mem_register(c, nullptr, 1, -1), TUTTI_ERR_INVALID, "data is NULL");
    expect(tutti_mem_register(c, &x, 0, -1), TUTTI_ERR_INVALID, "bytes is 0");
    expect(tutti_mem_register(c, &x, SIZE_MAX, -1), TUTTI_ERR_INVALID, "past the end of memory");
    expect(tutti_mem_register(c, &x, 4, 7), TUTTI_ERR_UNSUPPORTED, "fd is 7");
}
