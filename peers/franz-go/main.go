// franz-go against a broker: `client SCENARIO HOST:PORT PREFIX [INPUT]` prints what it saw as one line of JSON.
// Every topic and group it makes begins with PREFIX.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const deadline = 90 * time.Second

type result map[string]any

var scenarios = map[string]func(context.Context, *peer) (result, error){
	"produce":           produce,
	"headers":           headers,
	"group":             group,
	"consumer-protocol": consumerProtocol,
	"static-members":    staticMembers,
	"regex":             regex,
	"transactions":      transactions,
	"topics":            topics,
	"offsets":           offsets,
	"records":           deleteRecords,
	"configs":           configs,
	"share-group":       shareGroup,
	"share-renewal":     shareRenewal,
	"login":             login,
}

func main() {
	scenario, address, prefix := os.Args[1], os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	input := ""
	if len(os.Args) > 4 {
		input = os.Args[4]
	}
	seen, err := scenarios[scenario](ctx, &peer{address, prefix, input})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(seen)
}

// peer knows the broker and makes clients of it.
type peer struct{ address, prefix, input string }

func (p *peer) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.address)}, options...)...)
}

func (p *peer) name(suffix string) string { return p.prefix + "-" + suffix }

// topic makes one and waits until it can be written to.
func (p *peer) topic(ctx context.Context, suffix string, partitions int32) (string, error) {
	client, err := p.client()
	if err != nil {
		return "", err
	}
	defer client.Close()
	name := p.name(suffix)
	made, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, name)
	if err == nil {
		err = made.Err
	}
	return name, err
}

func (p *peer) send(ctx context.Context, topic string, values ...string) error {
	client, err := p.client(kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	for _, value := range values {
		if err := client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// read gives the first `count` records of a topic.
func (p *peer) read(ctx context.Context, topic string, count int, options ...kgo.Opt) ([]*kgo.Record, error) {
	options = append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	client, err := p.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return found, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return found, errs[0].Err
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

func values(records []*kgo.Record) []string {
	found := []string{}
	for _, record := range records {
		found = append(found, string(record.Value))
	}
	return found
}

// produce sends with every codec; franz-go is idempotent unless told otherwise.
func produce(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "produce", 1)
	if err != nil {
		return nil, err
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	order := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	for _, codec := range order {
		client, err := p.client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]))
		if err != nil {
			return nil, err
		}
		text := codec + " " + string(make([]byte, 200))
		err = client.ProduceSync(ctx, kgo.StringRecord(text), kgo.StringRecord(codec)).FirstErr()
		client.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", codec, err)
		}
	}
	records, err := p.read(ctx, topic, 2*len(order))
	idempotent := 0 // without a producer's id a broker cannot tell a duplicate, and franz-go goes on without one
	for _, record := range records {
		if record.ProducerID >= 0 {
			idempotent++
		}
	}
	seen := []string{}
	for index := 1; index < len(records); index += 2 {
		seen = append(seen, string(records[index].Value))
	}
	return result{"seen": seen, "count": len(records), "idempotent": idempotent}, err
}

func headers(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "headers", 1)
	if err != nil {
		return nil, err
	}
	client, err := p.client(kgo.DefaultProduceTopic(topic))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	at := time.UnixMilli(1_700_000_000_123)
	sent := &kgo.Record{
		Key: []byte("k"), Value: nil, Timestamp: at,
		Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b", Value: nil}},
	}
	if err := client.ProduceSync(ctx, sent).FirstErr(); err != nil {
		return nil, err
	}
	records, err := p.read(ctx, topic, 1)
	if err != nil {
		return nil, err
	}
	got := records[0]
	return result{
		"key": string(got.Key), "null": got.Value == nil, "headers": len(got.Headers),
		"header": string(got.Headers[0].Value), "time": got.Timestamp.UnixMilli(),
	}, nil
}

// group has two members with the cooperative balancer, which share four partitions and hand them over.
func group(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "group", 4)
	if err != nil {
		return nil, err
	}
	name := p.name("group-group")
	member := func() (*kgo.Client, *shares, error) {
		mine := newShares()
		client, err := p.client(
			kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer()),
			kgo.HeartbeatInterval(500*time.Millisecond), kgo.OnPartitionsAssigned(mine.add),
			kgo.OnPartitionsRevoked(mine.remove), kgo.OnPartitionsLost(mine.remove),
		)
		if err == nil {
			go poll(ctx, client)
		}
		return client, mine, err
	}
	first, ofFirst, err := member()
	if err != nil {
		return nil, err
	}
	defer first.Close()
	if err := until(ctx, func() bool { return ofFirst.count() == 4 }); err != nil {
		return nil, fmt.Errorf("alone: %w", err)
	}
	second, ofSecond, err := member()
	if err != nil {
		return nil, err
	}
	if err := until(ctx, func() bool { return ofFirst.count() == 2 && ofSecond.count() == 2 }); err != nil {
		return nil, fmt.Errorf("two: %d and %d: %w", ofFirst.count(), ofSecond.count(), err)
	}
	described, err := kadm.NewClient(first).DescribeGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	second.Close()
	if err := until(ctx, func() bool { return ofFirst.count() == 4 }); err != nil {
		return nil, fmt.Errorf("alone again: %w", err)
	}
	return result{
		"state": described[name].State, "members": len(described[name].Members),
		"protocol": described[name].Protocol, "kept": ofFirst.kept(),
	}, nil
}

func poll(ctx context.Context, client *kgo.Client) {
	for !client.PollFetches(ctx).IsClientClosed() && ctx.Err() == nil {
	}
}

// transactions reads, changes and writes in transactions: the second of three is aborted, and read again.
func transactions(ctx context.Context, p *peer) (result, error) {
	source, err := p.topic(ctx, "source", 1)
	if err != nil {
		return nil, err
	}
	sink, err := p.topic(ctx, "sink", 1)
	if err != nil {
		return nil, err
	}
	if err := p.send(ctx, source, "a", "b", "c", "d"); err != nil {
		return nil, err
	}
	ends, err := transform(ctx, p, source, sink)
	if err != nil {
		return nil, err
	}
	committed, err := p.read(ctx, sink, 4, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	dirty, err := p.read(ctx, sink, 5, kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	return result{"committed": values(committed), "uncommitted": len(dirty), "ends": ends}, err
}

func transform(ctx context.Context, p *peer, source, sink string) ([]bool, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(p.address), kgo.TransactionalID(p.name("transactional")), kgo.DefaultProduceTopic(sink),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumerGroup(p.name("transactions-group")), kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ends := []bool{}
	done := 0
	for attempt := 0; done < 4; attempt++ {
		records := session.PollRecords(ctx, 1).Records()
		if err := ctx.Err(); err != nil {
			return ends, err
		}
		if len(records) == 0 {
			attempt--
			continue
		}
		if err := session.Begin(); err != nil {
			return ends, err
		}
		for _, record := range records {
			session.Produce(ctx, kgo.StringRecord(string(record.Value)+"!"), nil)
		}
		if err := session.Client().Flush(ctx); err != nil {
			return ends, err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(attempt != 1))
		if err != nil {
			return ends, err
		}
		ends = append(ends, committed)
		if committed {
			done += len(records)
		}
	}
	return ends, nil
}

func topics(ctx context.Context, p *peer) (result, error) {
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin, name := kadm.NewClient(client), p.name("topics")
	if made, err := admin.CreateTopic(ctx, 2, 1, nil, name); err != nil || made.Err != nil {
		return nil, fmt.Errorf("create: %w %w", err, made.Err)
	}
	again, _ := admin.CreateTopic(ctx, 2, 1, nil, name)
	if _, err := admin.UpdatePartitions(ctx, 3, name); err != nil {
		return nil, err
	}
	described, err := admin.ListTopics(ctx, name)
	if err != nil {
		return nil, err
	}
	deleted, err := admin.DeleteTopics(ctx, name)
	if err != nil {
		return nil, err
	}
	return result{
		"again": fmt.Sprint(again.Err), "partitions": len(described[name].Partitions),
		"deleted": deleted[name].Err == nil,
	}, nil
}

func offsets(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "offsets", 1)
	if err != nil {
		return nil, err
	}
	before := time.Now().Add(-time.Minute)
	if err := p.send(ctx, topic, "a", "b", "c"); err != nil {
		return nil, err
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin, name := kadm.NewClient(client), p.name("offsets-group")
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	after, err := admin.ListOffsetsAfterMilli(ctx, before.UnixMilli(), topic)
	if err != nil {
		return nil, err
	}
	at := kadm.Offsets{}
	at.Add(kadm.Offset{Topic: topic, Partition: 0, At: 2, LeaderEpoch: -1})
	if err := admin.CommitAllOffsets(ctx, name, at); err != nil {
		return nil, err
	}
	lags, err := admin.Lag(ctx, name)
	if err != nil {
		return nil, err
	}
	deleted, err := admin.DeleteGroup(ctx, name)
	if err != nil {
		return nil, err
	}
	offset := func(listed kadm.ListedOffsets) int64 { return listed[topic][0].Offset }
	return result{
		"start": offset(starts), "end": offset(ends), "after": offset(after),
		"lag": lags[name].Lag.Total(), "deleted": deleted.Err == nil,
	}, nil
}

func deleteRecords(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "records", 1)
	if err != nil {
		return nil, err
	}
	if err := p.send(ctx, topic, "a", "b", "c"); err != nil {
		return nil, err
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: topic, Partition: 0, At: 2})
	deleted, err := admin.DeleteRecords(ctx, to)
	if err != nil {
		return nil, err
	}
	records, err := p.read(ctx, topic, 1)
	return result{"low": deleted[topic][0].LowWatermark, "seen": values(records)}, err
}

func configs(ctx context.Context, p *peer) (result, error) {
	topic, err := p.topic(ctx, "configs", 1)
	if err != nil {
		return nil, err
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	value := "123456"
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}
	altered, err := admin.AlterTopicConfigs(ctx, change, topic)
	if err != nil {
		return nil, err
	}
	if altered[0].Err != nil {
		return nil, altered[0].Err
	}
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" {
			return result{"retention": *config.Value}, nil
		}
	}
	return result{}, nil
}
