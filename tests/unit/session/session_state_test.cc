// SPDX-License-Identifier: Apache-2.0
#include "server/session/session_state.h"

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using ::testing::ElementsAre;

// Epochs of `steps` steps, whatever the address.
class FixedSteps : public Sampler {
 public:
  explicit FixedSteps(int64_t steps) : steps_(steps) {}
  int64_t steps(int64_t) const override { return steps_; }
  int64_t rows_max(int32_t, int32_t) const override { return 4; }
  void PrepareEpoch(int64_t) const override {}
  bool IsPrepared(int64_t) const override { return true; }
  void Rows(const Address&, std::vector<SampleRow>* rows) const override { rows->resize(4); }

 private:
  const int64_t steps_;
};

class SessionStateTest : public ::testing::Test {
 protected:
  SessionState Make(SessionStateOptions options = {}, int slots = 4) {
    SessionState state(&sampler_, options);
    state.AddSlots(slots);
    return state;
  }
  static std::vector<int> PlanAll(SessionState* state) {
    std::vector<int> slots;
    while (auto planned = state->PlanNext()) slots.push_back(planned->slot);
    return slots;
  }
  static void Build(SessionState* state, int slot) {
    state->OnBuilt(slot, {.rows = 4, .valid_rows = 4});
  }
  static std::vector<int64_t> AnnounceAll(SessionState* state) {
    std::vector<int64_t> steps;
    while (auto a = state->NextAnnouncement()) steps.push_back(a->address.step);
    return steps;
  }

  FixedSteps sampler_{10};
};

TEST_F(SessionStateTest, PlansAsManyBatchesAsMayBeAhead) {
  SessionState state = Make({.prefetch = 3});

  EXPECT_THAT(PlanAll(&state), ElementsAre(0, 1, 2));
  EXPECT_EQ(state.filling(), 3);
  EXPECT_EQ(state.free(), 1);
}

TEST_F(SessionStateTest, NoFreeSlotNoWork) {
  SessionState state = Make({.prefetch = 8}, /*slots=*/2);
  EXPECT_EQ(PlanAll(&state).size(), 2u);

  Build(&state, 0);
  const auto ready = state.NextAnnouncement();
  EXPECT_FALSE(state.PlanNext().has_value());

  ASSERT_OK(state.OnRelease(0, ready->sequence));
  EXPECT_EQ(state.PlanNext()->address.step, 2);
}

TEST_F(SessionStateTest, AnnouncesInTheOrderOfAddressesHoweverBatchesEnd) {
  SessionState state = Make({.prefetch = 3});
  PlanAll(&state);

  Build(&state, 2);
  EXPECT_THAT(AnnounceAll(&state), ElementsAre());
  Build(&state, 0);
  EXPECT_THAT(AnnounceAll(&state), ElementsAre(0));
  Build(&state, 1);
  EXPECT_THAT(AnnounceAll(&state), ElementsAre(1, 2));
}

TEST_F(SessionStateTest, RunsOnPastTheEndOfAnEpochAndMarksItsLastStep) {
  SessionState state = Make({.start = {3, 9}, .prefetch = 2});
  PlanAll(&state);
  Build(&state, 0);
  Build(&state, 1);

  const auto last = state.NextAnnouncement();
  const auto first = state.NextAnnouncement();

  EXPECT_EQ(last->address, (Address{3, 9, 0, 1}));
  EXPECT_TRUE(last->last_in_epoch);
  EXPECT_EQ(first->address, (Address{4, 0, 0, 1}));
  EXPECT_FALSE(first->last_in_epoch);
}

TEST_F(SessionStateTest, TheEndOfAnEpochIsTheStartOfTheNext) {
  SessionState state = Make({.start = {3, 10}});
  EXPECT_EQ(state.PlanNext()->address, (Address{4, 0, 0, 1}));
}

TEST_F(SessionStateTest, ReleasingTwiceIsRefusedAndFreesNothing) {
  SessionState state = Make({.prefetch = 1});
  PlanAll(&state);
  Build(&state, 0);
  const auto ready = state.NextAnnouncement();
  ASSERT_OK(state.OnTake(0, ready->sequence));
  ASSERT_OK(state.OnRelease(0, ready->sequence));

  EXPECT_TRUE(absl::IsFailedPrecondition(state.OnRelease(0, ready->sequence)));
  EXPECT_TRUE(absl::IsFailedPrecondition(state.OnTake(0, ready->sequence)));
  EXPECT_EQ(state.free(), 4);
}

TEST_F(SessionStateTest, AReleaseOfAnEarlierUseOfTheSlotIsRefused) {
  SessionState state = Make({.prefetch = 1}, /*slots=*/1);
  PlanAll(&state);
  Build(&state, 0);
  const auto first = state.NextAnnouncement();
  ASSERT_OK(state.OnRelease(0, first->sequence));
  PlanAll(&state);
  Build(&state, 0);
  const auto second = state.NextAnnouncement();

  EXPECT_TRUE(absl::IsFailedPrecondition(state.OnRelease(0, first->sequence)));
  EXPECT_TRUE(absl::IsFailedPrecondition(state.OnRelease(7, second->sequence)));
  EXPECT_TRUE(absl::IsFailedPrecondition(state.OnRelease(-1, second->sequence)));
  EXPECT_OK(state.OnRelease(0, second->sequence));
}

TEST_F(SessionStateTest, ASeekDropsWhatIsAheadAndGoesOnThere) {
  SessionState state = Make({.prefetch = 3});
  PlanAll(&state);
  Build(&state, 0);
  const auto old = state.NextAnnouncement();
  Build(&state, 1);
  std::vector<int> stale;

  ASSERT_OK(state.OnSeek(1, {5, 7}, &stale));

  EXPECT_THAT(stale, ElementsAre(2));
  EXPECT_EQ(state.PlanNext()->address.step, 7);
  Build(&state, 2);  // the stale one ends: free, not announced
  const auto next = state.PlanNext();
  EXPECT_EQ(next->address.step, 8);
  EXPECT_EQ(AnnounceAll(&state).size(), 0u);
  ASSERT_OK(state.OnRelease(old->slot, old->sequence));  // unseen
}

TEST_F(SessionStateTest, AGenerationMustGrowAndAPositionMustExist) {
  SessionState state = Make();
  std::vector<int> stale;
  ASSERT_OK(state.OnSeek(2, {0, 0}, &stale));

  EXPECT_TRUE(absl::IsInvalidArgument(state.OnSeek(2, {0, 0}, &stale)));
  EXPECT_TRUE(absl::IsInvalidArgument(state.OnSeek(3, {0, 11}, &stale)));
  EXPECT_TRUE(absl::IsInvalidArgument(state.OnSeek(3, {-1, 0}, &stale)));
  EXPECT_OK(state.OnSeek(3, {0, 10}, &stale));
}

TEST_F(SessionStateTest, AFailureComesInItsTurnAndNothingAfterItUntilASeek) {
  SessionState state = Make({.prefetch = 3});
  PlanAll(&state);
  Build(&state, 2);
  state.OnBuilt(1, {.status = MakeSampleError(SampleReason::kCorrupt, "x"), .failed_ordinal = 17});
  Build(&state, 0);

  const auto good = state.NextAnnouncement();
  const auto failure = state.NextAnnouncement();

  EXPECT_EQ(good->address.step, 0);
  EXPECT_EQ(failure->slot, -1);
  EXPECT_EQ(failure->ordinal, 17);
  EXPECT_EQ(failure->next, (Position{0, 2}));
  EXPECT_FALSE(state.NextAnnouncement().has_value());
  EXPECT_FALSE(state.PlanNext().has_value());
  std::vector<int> stale;
  ASSERT_OK(state.OnSeek(1, failure->next, &stale));
  EXPECT_EQ(state.PlanNext()->address.step, 2);
}

TEST_F(SessionStateTest, MoreBadSamplesThanAllowedFailTheBatchThatHasThem) {
  SessionState state = Make({.num_samples = 100, .prefetch = 2, .max_bad_count = 2});
  PlanAll(&state);
  using enum wire::RowStatus;
  const std::vector<wire::RowStatus> two_bad = {kOk, kSkipped, kSubstituted, kOk};
  const std::vector<wire::RowStatus> one_bad = {kOk, kOk, kSkipped, kOk};
  state.OnBuilt(0, {.rows = 4, .valid_rows = 3, .row_status = &two_bad});
  state.OnBuilt(1, {.rows = 4, .valid_rows = 3, .row_status = &one_bad});

  EXPECT_TRUE(state.NextAnnouncement()->status.ok());
  EXPECT_THAT(state.NextAnnouncement()->status,
              FailsWith(absl::StatusCode::kResourceExhausted, "3 bad samples in epoch 0"));
}

TEST_F(SessionStateTest, OnlyBadSamplesEndWithNoUsableSample) {
  SessionState state = Make({.num_samples = 8, .prefetch = 2});
  PlanAll(&state);
  const std::vector<wire::RowStatus> all_bad(4, wire::RowStatus::kSkipped);
  state.OnBuilt(0, {.rows = 4, .row_status = &all_bad});
  state.OnBuilt(1, {.rows = 4, .row_status = &all_bad});

  EXPECT_TRUE(state.NextAnnouncement()->status.ok());
  EXPECT_THAT(state.NextAnnouncement()->status,
              FailsWith(absl::StatusCode::kFailedPrecondition, "no usable sample"));
}

TEST_F(SessionStateTest, NeedsSlotsOnlyWhenTheTrainerHoldsThemAll) {
  SessionState state = Make({.prefetch = 2}, /*slots=*/2);
  PlanAll(&state);
  Build(&state, 0);
  Build(&state, 1);
  const auto a = state.NextAnnouncement();
  const auto b = state.NextAnnouncement();
  ASSERT_OK(state.OnTake(a->slot, a->sequence));
  EXPECT_FALSE(state.NeedsSlots());

  ASSERT_OK(state.OnTake(b->slot, b->sequence));
  EXPECT_TRUE(state.NeedsSlots());

  state.AddSlots(2);
  EXPECT_FALSE(state.NeedsSlots());
  EXPECT_EQ(state.PlanNext()->slot, 2);
}

// Random events against the invariants: order, counts, and that a session never gets stuck.
TEST_F(SessionStateTest, AnyOrderOfEventsKeepsOrderAndCounts) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    uint32_t x = seed;
    const auto random = [&x](uint32_t n) {
      x = x * 1664525 + 1013904223;
      return (x >> 8) % n;
    };
    SessionState state = Make({.prefetch = 1 + static_cast<int>(random(4))}, 5);
    std::vector<int> filling;
    std::vector<SessionState::Announcement> ready, leased;
    uint32_t generation = 0;
    Position due{0, 0};
    for (int event = 0; event < 400; ++event) {
      switch (random(6)) {
        case 0:
        case 1:
          if (auto p = state.PlanNext()) filling.push_back(p->slot);
          break;
        case 2:
          if (!filling.empty()) {
            const size_t i = random(filling.size());
            Build(&state, filling[i]);
            filling.erase(filling.begin() + i);
          }
          break;
        case 3:
          if (!ready.empty()) {
            ASSERT_OK(state.OnTake(ready[0].slot, ready[0].sequence));
            leased.push_back(ready[0]);
            ready.erase(ready.begin());
          }
          break;
        case 4:
          if (!leased.empty()) {
            const size_t i = random(leased.size());
            ASSERT_OK(state.OnRelease(leased[i].slot, leased[i].sequence));
            leased.erase(leased.begin() + i);
          }
          break;
        case 5:
          if (random(10) == 0) {
            std::vector<int> stale;
            due = {random(5), random(10)};
            ASSERT_OK(state.OnSeek(++generation, due, &stale));
            for (const auto& r : ready) ASSERT_OK(state.OnRelease(r.slot, r.sequence));
            ready.clear();
          }
          break;
      }
      while (auto a = state.NextAnnouncement()) {
        ASSERT_EQ(a->generation, generation);
        ASSERT_EQ((Position{a->address.epoch, a->address.step}), due);
        due = due.step == 9 ? Position{due.epoch + 1, 0} : Position{due.epoch, due.step + 1};
        ready.push_back(*a);
      }
      ASSERT_EQ(state.filling(), static_cast<int>(filling.size()));
      ASSERT_EQ(state.ready(), static_cast<int>(ready.size()));
      ASSERT_EQ(state.leased(), static_cast<int>(leased.size()));
      ASSERT_GE(state.free(), 0);
    }
  }
}

}  // namespace
}  // namespace batchd
