// SYCL graphs and USM behind a C interface; compiled for the host alone, by any C++17 compiler.
//
// Graphs are built node by node: no queue is ever put in the recording state. What is submitted to
// one queue stays in order, also where the queue itself keeps none: barriers go around it.
#include <sycl/sycl.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ex = sycl::ext::oneapi::experimental;
using Modifiable = ex::command_graph<ex::graph_state::modifiable>;
using Executable = ex::command_graph<ex::graph_state::executable>;

namespace {

thread_local std::string last_error;

template <typename Work>
auto guarded(Work work, decltype(work()) failed) -> decltype(work()) {
    try {
        return work();
    } catch (const std::exception &error) {
        last_error = error.what();
    } catch (...) {
        last_error = "an unknown C++ exception";
    }
    return failed;
}

template <typename Work>
int checked(Work work) {
    return guarded([&] { work(); return 0; }, 1);
}

struct Argument {
    std::int32_t kind;  // 0: a value; 1: local memory of `value` bytes
    std::int32_t size;
    std::uint64_t value;
};

struct Graph {
    Modifiable graph;
    std::vector<std::unique_ptr<ex::node>> nodes;

    explicit Graph(sycl::queue &queue) : graph(queue.get_context(), queue.get_device()) {}

    template <typename Work>
    void *add(Work work, void **waits, int count) {
        std::vector<ex::node> before;
        for (int i = 0; i < count; ++i) before.push_back(*static_cast<ex::node *>(waits[i]));
        nodes.push_back(std::make_unique<ex::node>(
            graph.add(work, {ex::property::node::depends_on(before)})));
        return nodes.back().get();
    }
};

// Staging buffers in turn, each free again when the copy out of it is done.
struct Ring {
    sycl::queue queue;
    std::size_t size;
    struct Entry {
        char *memory;
        std::optional<sycl::event> used;
    };
    std::vector<Entry> entries;
    std::size_t next = 0;

    Ring(sycl::queue &q, std::size_t bytes, int count) : queue(q), size(bytes) {
        for (int i = 0; i < count; ++i) {
            auto *memory = static_cast<char *>(sycl::malloc_host(bytes ? bytes : 1, queue));
            if (!memory) throw std::bad_alloc();
            entries.push_back({memory, std::nullopt});
        }
    }

    ~Ring() {
        for (auto &entry : entries) {
            if (entry.used) entry.used->wait();
            sycl::free(entry.memory, queue);
        }
    }

    Entry &take() {
        Entry &entry = entries[next];
        next = (next + 1) % entries.size();
        if (entry.used) entry.used->wait();
        entry.used.reset();
        return entry;
    }
};

void settle(sycl::queue &queue) {
    if (!queue.is_in_order()) queue.ext_oneapi_submit_barrier();
}

void set(sycl::handler &handler, int index, const Argument &argument) {
    if (argument.kind == 1) {
        handler.set_arg(index, sycl::local_accessor<unsigned char, 1>(
                                   sycl::range<1>(argument.value), handler));
        return;
    }
    switch (argument.size) {
        case 1: handler.set_arg(index, static_cast<std::uint8_t>(argument.value)); break;
        case 2: handler.set_arg(index, static_cast<std::uint16_t>(argument.value)); break;
        case 4: handler.set_arg(index, static_cast<std::uint32_t>(argument.value)); break;
        default: handler.set_arg(index, argument.value);
    }
}

void write(Ring &ring, sycl::queue &queue, void *target, const void *words, std::size_t bytes) {
    auto &entry = ring.take();
    std::memcpy(entry.memory, words, bytes);
    entry.used = queue.memcpy(target, entry.memory, bytes);
    settle(queue);
}

}  // namespace

extern "C" {

const char *gj_error() { return last_error.c_str(); }

void *gj_malloc_device(sycl::queue *queue, std::size_t bytes, std::size_t alignment) {
    return guarded([&] { return sycl::aligned_alloc_device(alignment, bytes, *queue); },
                   static_cast<void *>(nullptr));
}

int gj_free(sycl::queue *queue, void *memory) {
    return checked([&] { sycl::free(memory, *queue); });
}

// Waits for the queue where `wait` isn't 0.
int gj_memcpy(sycl::queue *queue, void *target, const void *source, std::size_t bytes, int wait) {
    return checked([&] {
        auto event = queue->memcpy(target, source, bytes);
        if (wait) event.wait_and_throw();
        else settle(*queue);
    });
}

int gj_memset(sycl::queue *queue, void *target, int byte, std::size_t bytes) {
    return checked([&] {
        queue->memset(target, byte, bytes);
        settle(*queue);
    });
}

int gj_wait(sycl::queue *queue) {
    return checked([&] { queue->wait_and_throw(); });
}

// What `after` is given from now on waits for all that `before` was given.
int gj_order(sycl::queue *before, sycl::queue *after) {
    return checked([&] {
        if (*before == *after) return settle(*before);
        after->ext_oneapi_submit_barrier({before->ext_oneapi_submit_barrier()});
    });
}

void *gj_graph_create(sycl::queue *queue) {
    return guarded([&] { return static_cast<void *>(new Graph(*queue)); },
                   static_cast<void *>(nullptr));
}

int gj_graph_delete(void *graph) {
    return checked([&] { delete static_cast<Graph *>(graph); });
}

// Sizes are CUDA's x, y and z, x fastest; in SYCL the last dimension is.
void *gj_add_kernel(void *graph, sycl::kernel *kernel, const std::size_t *threads,
                    const std::size_t *block, const Argument *arguments, int count, void **waits,
                    int wait_count) {
    return guarded(
        [&] {
            auto work = [&](sycl::handler &handler) {
                for (int i = 0; i < count; ++i) set(handler, i, arguments[i]);
                if (threads[1] == 1 && threads[2] == 1) {
                    handler.parallel_for(sycl::nd_range<1>({threads[0]}, {block[0]}), *kernel);
                } else {
                    handler.parallel_for(
                        sycl::nd_range<3>({threads[2], threads[1], threads[0]},
                                          {block[2], block[1], block[0]}),
                        *kernel);
                }
            };
            return static_cast<Graph *>(graph)->add(work, waits, wait_count);
        },
        static_cast<void *>(nullptr));
}

void *gj_finalize(void *graph) {
    return guarded(
        [&] {
            return static_cast<void *>(
                new Executable(static_cast<Graph *>(graph)->graph.finalize()));
        },
        static_cast<void *>(nullptr));
}

int gj_executable_delete(void *executable) {
    return checked([&] { delete static_cast<Executable *>(executable); });
}

int gj_print_graph(void *graph, const char *path) {
    return checked([&] { static_cast<Graph *>(graph)->graph.print_graph(path); });
}

int gj_replay(void *executable, sycl::queue *queue) {
    return checked([&] {
        queue->ext_oneapi_graph(*static_cast<Executable *>(executable));
        settle(*queue);
    });
}

void *gj_ring_create(sycl::queue *queue, std::size_t bytes, int count) {
    return guarded([&] { return static_cast<void *>(new Ring(*queue, bytes, count)); },
                   static_cast<void *>(nullptr));
}

int gj_ring_delete(void *ring) {
    return checked([&] { delete static_cast<Ring *>(ring); });
}

int gj_write(void *ring, sycl::queue *queue, void *target, const void *words, std::size_t bytes) {
    return checked([&] { write(*static_cast<Ring *>(ring), *queue, target, words, bytes); });
}

int gj_write_and_replay(void *executable, sycl::queue *queue, void *target, const void *words,
                        std::size_t bytes, void *ring) {
    return checked([&] {
        write(*static_cast<Ring *>(ring), *queue, target, words, bytes);
        queue->ext_oneapi_graph(*static_cast<Executable *>(executable));
        settle(*queue);
    });
}
}
