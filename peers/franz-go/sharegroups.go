package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shareMember is a member of a share group (KIP-932).
type shareMember struct {
	client *kgo.Client
	seen   []string // value and delivery count of each record
	failed error    // of an acknowledgement
}

func (p *peer) shareMember(topic, group string) (*shareMember, error) {
	member := &shareMember{}
	client, err := p.client(
		kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.ShareMaxRecords(10), kgo.ShareMaxRecordsStrict(),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { member.failed = results.Error() }),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	member.client = client
	return member, err
}

// poll acknowledges what it receives: `decide` says how.
func (m *shareMember) poll(ctx context.Context, decide func(*kgo.Record) kgo.AckStatus) error {
	brief, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	for _, record := range m.client.PollRecords(brief, 10).Records() {
		m.seen = append(m.seen, fmt.Sprintf("%s %d", record.Value, record.DeliveryCount()))
		record.Ack(decide(record))
	}
	if err := m.client.FlushAcks(ctx); err != nil {
		return err
	}
	return m.failed
}

func (p *peer) configureGroup(ctx context.Context, group, name, value string) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	defer client.Close()
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = name, &value
	resource.Configs = append(resource.Configs, config)
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, client)
	if err == nil && response.Resources[0].ErrorCode != 0 {
		err = fmt.Errorf("%s: error %d", name, response.Resources[0].ErrorCode)
	}
	return err
}

// shareGroup has two members that share one partition: each record is accepted once, but what is released comes again,
// and what is rejected does not.
func shareGroup(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "share", 1)
	if err != nil {
		return nil, err
	}
	name := p.name("share-group")
	if err := p.configureGroup(ctx, name, "share.auto.offset.reset", "earliest"); err != nil {
		return nil, err
	}
	values := []string{}
	for number := range 40 {
		values = append(values, fmt.Sprint(number))
	}
	if err := p.send(ctx, topic, values...); err != nil {
		return nil, err
	}
	members := []*shareMember{}
	for range 2 {
		member, err := p.shareMember(topic, name)
		if err != nil {
			return nil, err
		}
		members = append(members, member)
	}
	decide := func(record *kgo.Record) kgo.AckStatus {
		switch {
		case string(record.Value) == "7":
			return kgo.AckReject
		case record.Offset%4 == 0 && record.DeliveryCount() == 1:
			return kgo.AckRelease
		}
		return kgo.AckAccept
	}
	err = until(ctx, func() bool {
		total := 0
		for _, member := range members {
			if err := member.poll(ctx, decide); err != nil {
				fmt.Println(err)
			}
			total += len(member.seen)
		}
		return total >= 50
	})
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(members[0].client)
	described, err := admin.DescribeShareGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	group := described[name]
	counts := map[string]int{}
	for _, member := range members {
		for _, seen := range member.seen {
			counts[seen]++
		}
		member.client.Close()
	}
	again := []string{}
	for seen, count := range counts {
		if count > 1 {
			return nil, fmt.Errorf("%s was received %d times", seen, count)
		}
		if seen[len(seen)-1] != '1' {
			again = append(again, seen)
		}
	}
	sort.Strings(again)
	return result{
		"state": group.GroupState, "members": len(group.Members), "received": len(counts), "again": again,
	}, nil
}

// shareRenewal holds a record for longer than its lock lasts, as it renews the lock.
func shareRenewal(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "renewal", 1)
	if err != nil {
		return nil, err
	}
	name := p.name("renewal-group")
	for config, value := range map[string]string{
		"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "2000",
	} {
		if err := p.configureGroup(ctx, name, config, value); err != nil {
			return nil, err
		}
	}
	if err := p.send(ctx, topic, "held"); err != nil {
		return nil, err
	}
	holder, err := p.shareMember(topic, name)
	if err != nil {
		return nil, err
	}
	defer holder.client.Close()
	var held *kgo.Record
	err = until(ctx, func() bool {
		for _, record := range holder.client.PollRecords(ctx, 1).Records() {
			held = record
		}
		return held != nil
	})
	if err != nil {
		return nil, err
	}
	other, err := p.shareMember(topic, name)
	if err != nil {
		return nil, err
	}
	defer other.client.Close()
	accept := func(*kgo.Record) kgo.AckStatus { return kgo.AckAccept }
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		held.Ack(kgo.AckRenew)
		if err := holder.client.FlushAcks(ctx); err != nil {
			return nil, err
		}
		if err := other.poll(ctx, accept); err != nil {
			return nil, err
		}
	}
	held.Ack(kgo.AckAccept)
	if err := holder.client.FlushAcks(ctx); err != nil {
		return nil, err
	}
	if err := p.send(ctx, topic, "next"); err != nil {
		return nil, err
	}
	err = until(ctx, func() bool { return other.poll(ctx, accept) == nil && len(other.seen) > 0 })
	return result{"failed": fmt.Sprint(holder.failed), "other": other.seen}, err
}
